"""The index of a large store saves opening its runs, and is never believed over them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.record import run_index, storage
from harness.record.store import Store
from tests.record.stored_runs import record, samples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def large(root: str) -> Store:
    store = Store(root)
    for number in range(run_index.INDEX_MIN_RUNS):
        store.write(record(f"run-{number:03}", f"2026-01-02T03:{number:02}:00Z"), samples(2))
    return store


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of every run file that a listing opens from now on."""
    opened: list[str] = []
    for backend in (storage.LocalStorage, storage.RemoteStorage):

        def spy(self, paths, limit_bytes, real=backend.read_many):
            opened.extend(paths)
            return real(self, paths, limit_bytes)

        monkeypatch.setattr(backend, "read_many", spy)
    return opened


def test_a_large_store_is_opened_once(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = reads_of(monkeypatch)
    cold = large.listing()
    assert len(opened) == run_index.INDEX_MIN_RUNS
    warm = Store(large.root).listing()
    assert len(opened) == run_index.INDEX_MIN_RUNS
    assert list(warm.records) == list(cold.records)
    large.write(record("added", "2027-01-01T00:00:00Z"), [])
    assert large.listing().records[0].id == "added"
    assert opened[run_index.INDEX_MIN_RUNS :] == ["added/run.json"]


def test_a_small_store_gets_no_cache(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(record("r1"), [])
    store.listing()
    assert [path.name for path in tmp_path.iterdir()] == ["r1"]


@pytest.mark.parametrize("damage", [b"", b"PAR1garbagePAR1", "bit", "foreign", "crafted"], ids=str)
def test_a_damaged_cache_is_made_anew(tmp_path: Path, damage: bytes | str) -> None:
    store = Store(str(tmp_path))
    for number in range(run_index.INDEX_MIN_RUNS):
        store.write(record(f"run-{number:03}"), [])
    expected = list(store.listing().records)
    path = tmp_path / run_index.index_file()
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 3] ^= 1
        path.write_bytes(content)
    elif damage == "foreign":
        pq.write_table(pa.table({"name": ["run-000"]}), path)
    elif damage == "crafted":
        table = pq.read_table(path)
        column = pa.array([None] * len(table), pa.large_binary())
        pq.write_table(table.set_column(3, "record", column), path)
    else:
        path.write_bytes(damage)
    assert list(store.listing().records) == expected
    assert list(store.listing().records) == expected


def test_a_cache_never_outlives_what_it_was_made_from(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for number in range(run_index.INDEX_MIN_RUNS + 2):
        store.write(record(f"run-{number:03}"), samples(2))
    store.listing()
    path = tmp_path / "run-000" / "run.json"
    path.write_text(path.read_text().replace('"complete"', '"incomplete"'))
    (tmp_path / "run-001" / "samples.parquet").write_bytes(b"short")
    for leftover in (tmp_path / "run-002").iterdir():
        leftover.unlink()
    (tmp_path / "run-002").rmdir()
    listing = store.listing()
    found = {r.id: r.status for r in listing.records}
    assert found["run-000"] == "incomplete"
    assert [problem.name for problem in listing.problems] == ["run-001"]
    assert "run-002" not in found


def test_a_change_that_keeps_the_size_is_seen(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for number in range(run_index.INDEX_MIN_RUNS):
        store.write(record(f"run-{number:03}"), samples(2))
    store.listing()
    path = tmp_path / "run-000" / "run.json"
    old, text = path.stat(), path.read_text()
    changed = text.replace('"complete"', '"stopped!"')
    assert changed != text
    path.write_text(changed)
    # As a later write leaves it, however coarse the file system's clock.
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 1_000_000_000))
    assert path.stat().st_size == old.st_size
    listing = store.listing()
    assert "run-000" not in {r.id for r in listing.records}
    assert [problem.name for problem in listing.problems] == ["run-000"]


def test_a_store_whose_cache_cannot_be_written_still_lists(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self, name: str, content: bytes) -> None:
        raise PermissionError(errno.EACCES, "read-only")

    monkeypatch.setattr(storage.LocalStorage, "replace", refuse)
    monkeypatch.setattr(storage.RemoteStorage, "replace", refuse)
    for _ in range(2):
        listing = large.listing()
        assert len(listing.records) == run_index.INDEX_MIN_RUNS
        assert listing.problems == ()
