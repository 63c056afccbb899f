"""Raw samples as a Parquet file: every timed phase of a run, in the order it was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.record.records import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAMPLES = 5_000_000
MAX_SAMPLES_BYTES = 256 << 20

_COLUMNS = pa.schema(
    [
        ("order", pa.int64()),
        ("block", pa.int64()),
        ("arm", pa.string()),
        ("phase", pa.string()),
        ("duration_ms", pa.float64()),
        ("warmup", pa.bool_()),
    ]
)


def encode_samples(samples: Sequence[Sample]) -> bytes:
    """The samples as one Parquet file (zstd)."""
    columns = {name: [getattr(s, name) for s in samples] for name in _COLUMNS.names}
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns, schema=_COLUMNS), sink, compression="zstd", write_page_checksum=True
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_samples(content: bytes) -> tuple[Sample, ...]:
    """The samples of one Parquet file.

    `ValueError` where it is not one, holds other columns, or unpacks to more than a run can hold:
    sizes are checked before anything is unpacked.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        metadata = file.metadata
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        unpacked_bytes = sum(group.total_byte_size for group in groups)
        if metadata.num_rows > MAX_SAMPLES or unpacked_bytes > MAX_SAMPLES_BYTES:
            raise ValueError(f"it claims {metadata.num_rows} rows in {unpacked_bytes} bytes")
        if not file.schema_arrow.equals(_COLUMNS):
            raise ValueError(f"its columns are {', '.join(file.schema_arrow.names) or 'none'}")
        table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise ValueError("it is damaged or not a Parquet file") from error
    columns = [table.column(name).to_pylist() for name in _COLUMNS.names]
    rows = (dict(zip(_COLUMNS.names, row, strict=True)) for row in zip(*columns, strict=True))
    return tuple(msgspec.convert(row, Sample) for row in rows)
