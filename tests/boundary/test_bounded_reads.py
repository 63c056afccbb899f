"""Readers of foreign files: what is no regular file is refused at once, and sizes come first."""

from __future__ import annotations

import contextlib
import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.boundary.bounded_reads import gunzip, read_regular
from harness.boundary.parquet_sizes import unpacked_bytes


def test_a_regular_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match=r"larger than the limit \(5 > 4 bytes\)"):
        read_regular(path, 4)


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for place in (tmp_path / "pipe", tmp_path / "link", tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(place, 100)


def test_a_file_without_a_size_is_bounded_all_the_same() -> None:
    place = Path("/proc/self/status")
    if not place.exists():
        pytest.skip("needs /proc, whose files say that they are empty")
    assert read_regular(place, 1 << 20)
    with pytest.raises(OSError, match="larger than the limit"):
        read_regular(place, 10)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_gunzip_reads_all_members(members: list[bytes]) -> None:
    packed = b"".join(gzip.compress(member) for member in members) + b"\0" * 5
    assert gunzip(packed, 1000) == b"".join(members)


def test_a_gzip_bomb_is_not_unpacked() -> None:
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        gunzip(gzip.compress(b"\0" * 10_000_000), 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        gunzip(gzip.compress(b"x" * 600) * 2, 1000)


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"x" * 500)[:-12]], ids=["another", "cut"]
)
def test_damaged_gzip_is_a_sentence(content: bytes) -> None:
    with pytest.raises(ValueError, match="the gzip data"):
        gunzip(content, 1000)


def parquet(**columns: list[object]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def sizes_of(content: bytes) -> int:
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    return unpacked_bytes(content, metadata, max_pages=100)


def test_pages_are_as_large_as_arrow_says_of_its_own_files() -> None:
    content = parquet(name=["a" * 50, "b"] * 500, number=list(range(1000)))
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    claimed = metadata.row_group(0).total_byte_size
    # Arrow counts the headers, too: some dozens of bytes a page.
    assert 0.8 * claimed <= sizes_of(content) <= claimed
    assert sizes_of(parquet(name=[])) == 0


def test_pages_tell_a_bomb_before_anything_is_unpacked() -> None:
    content = parquet(name=["a" * 50_000_000])
    assert len(content) < 60_000
    assert sizes_of(content) > 50_000_000


def test_many_pages_are_refused() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"number": list(range(5000))})
    pq.write_table(table, sink, use_dictionary=False, data_page_size=1, write_batch_size=10)
    with pytest.raises(ValueError, match="too many"):
        sizes_of(bytes(sink.getvalue()))


@given(st.data())
def test_bent_pages_give_a_size_or_a_sentence(data: st.DataObject) -> None:
    content = bytearray(parquet(name=["a", "bb"] * 20, number=list(range(40))))
    metadata = pq.ParquetFile(pa.BufferReader(bytes(content))).metadata
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert unpacked_bytes(bytes(content), metadata, max_pages=100) >= 0
