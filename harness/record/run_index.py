"""A cache that lets a large store be listed without opening every run. Never a source of truth.

Each row holds a run's record without its raw samples, next to the stamp of the files it was read
from. A row counts only while that stamp is still true, and a damaged or foreign cache is an empty
one, so deleting the file is always safe.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.boundary.parquet_sizes import unpacked_bytes
from harness.record.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.record.storage import Storage

INDEX_MIN_RUNS = 32
"""Below this a scan is quick, and a small store (one kept in git, say) stays free of the file."""

_MAX_BYTES = 1 << 30
_MAX_RUNS = 1_000_000
_COLUMNS = pa.schema(
    [
        ("name", pa.string()),
        ("stamp", pa.string()),
        ("created_utc", pa.string()),
        ("record", pa.large_binary()),
    ]
)


@dataclass(frozen=True)
class IndexEntry:
    """One run as the cache holds it."""

    stamp: str
    """Size and version of the run's files when they were read."""
    created_utc: str
    record: bytes
    """The run's record without samples, as msgpack."""


@cache
def index_file() -> str:
    """Name of the cache file.

    It follows the shape of `RunRecord`, so that versions of gapless whose records have other fields
    share a store without reading, or undoing, each other's cache.
    """
    shape = msgspec.json.encode(msgspec.json.schema(RunRecord), order="sorted")
    return f".index-{hashlib.sha256(shape).hexdigest()[:8]}.parquet"


def load_index(storage: Storage) -> dict[str, IndexEntry]:
    """Folder name -> entry; empty where there is no cache or it cannot be read."""
    try:
        content = storage.read(index_file(), _MAX_BYTES)
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if not file.schema_arrow.equals(_COLUMNS) or file.metadata.num_rows > _MAX_RUNS:
            return {}
        if unpacked_bytes(content, file.metadata, max_pages=_MAX_RUNS) > _MAX_BYTES:
            return {}
        table = file.read()
    except (OSError, ValueError, pa.ArrowException):
        return {}
    columns = (table.column(name).to_pylist() for name in _COLUMNS.names)
    rows = zip(*columns, strict=True)
    return {name: IndexEntry(*rest) for name, *rest in rows if None not in (name, *rest)}


def save_index(storage: Storage, entries: Mapping[str, IndexEntry]) -> None:
    """Replace the cache; a store that cannot be written simply works without one."""
    table = pa.table(
        {
            "name": list(entries),
            "stamp": [entry.stamp for entry in entries.values()],
            "created_utc": [entry.created_utc for entry in entries.values()],
            "record": [entry.record for entry in entries.values()],
        },
        schema=_COLUMNS,
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    try:
        storage.replace(index_file(), sink.getvalue().to_pybytes())
    except OSError:
        return
