"""Raw samples as a Parquet file: every timed phase of a run, in the order it was taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.boundary.foreign_text import one_line, visible
from harness.boundary.parquet_sizes import unpacked_bytes
from harness.record.records import PHASES, Sample
from harness.record.soundness import unsound

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAMPLES = 1_000_000
"""A run of three hours with a phase every 11 ms; they take 0.2 GB and a second or two to read."""
MAX_SAMPLES_BYTES = 64 << 20
_MAX_PAGES = 10_000
_MAX_NAME_BYTES = 1_000
"""Of an arm."""

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
    rows, pages and sizes are looked at before anything is unpacked.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(content))
        names = metadata.schema.names
        if not metadata.schema.to_arrow_schema().equals(_COLUMNS):
            raise ValueError(f"its columns are {one_line(', '.join(names))[:200] or 'none'}")
        size = unpacked_bytes(content, metadata, max_pages=_MAX_PAGES)
        if metadata.num_rows > MAX_SAMPLES or size > MAX_SAMPLES_BYTES:
            raise ValueError(f"it holds {metadata.num_rows} rows in {size} bytes")
        table = pq.ParquetFile(
            pa.BufferReader(content),
            metadata=metadata,
            page_checksum_verification=True,
            # One text for all rows that have it, however long it is and however many they are.
            read_dictionary=["arm", "phase"],
        ).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ValueError("it is damaged or not a Parquet file") from error
    order, block, arm, phase, duration_ms, warmup = (_values(table, name) for name in names)
    unknown = set(phase) - set(PHASES)
    if unknown:
        raise ValueError(f"it has the phase {min(unknown)!r}")
    rows = zip(order, block, arm, phase, duration_ms, warmup, strict=True)
    return tuple(
        Sample(order=o, block=b, arm=a, phase=p, duration_ms=ms, warmup=w)
        for o, b, a, p, ms, w in rows
    )


def _values(table: pa.Table, name: str) -> list[Any]:
    """A column as a list. `ValueError` where a cell is empty, or no record may hold it."""
    column = table.column(name)
    if column.null_count:
        raise ValueError(f"its column {name} has an empty cell")
    if pa.types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        longest = pc.max(pc.binary_length(whole.dictionary)).as_py() or 0
        if longest > _MAX_NAME_BYTES:
            raise ValueError(f"a text of its column {name} takes {longest} bytes")
        texts = [visible(text) for text in whole.dictionary.to_pylist()]
        return [texts[index] for index in whole.indices.to_pylist()]
    if pa.types.is_floating(column.type):
        wrong = next(filter(None, (unsound(value, name) for value in _extremes(column))), None)
        if wrong is not None:
            raise ValueError(wrong)
    values: list[Any] = column.to_pylist()
    return values


def _extremes(column: pa.ChunkedArray) -> list[float]:
    figures = column.to_numpy()
    return [float(figures.min()), float(figures.max())] if len(figures) else []
