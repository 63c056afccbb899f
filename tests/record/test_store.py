"""The store: what is written is read, whatever else lies in it and however it fails."""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import StoreError
from harness.record import storage
from harness.record.records import (
    SCHEMA_VERSION,
    Parity,
)
from harness.record.store import MAX_INLINE_SAMPLES, MAX_RUN_BYTES, Store, check_run_id, new_run_id
from tests.record.stored_runs import record, samples


@pytest.mark.parametrize("count", [0, 10, MAX_INLINE_SAMPLES, MAX_INLINE_SAMPLES + 1])
def test_what_is_written_is_read(root: str, count: int) -> None:
    store, run_id = Store(root), new_run_id("tiny", "cpu")
    stored = store.write(record(run_id), samples(count))
    assert stored.num_samples == count
    assert (stored.samples is None) == (count > MAX_INLINE_SAMPLES)
    again = Store(root)
    assert again.read(run_id) == stored
    assert again.samples(run_id) == tuple(samples(count))
    listing = again.listing()
    assert list(listing.records) == [msgspec.structs.replace(stored, samples=None)]
    assert listing.problems == ()


def test_an_absent_store_is_empty_and_is_not_made_by_reading(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "absent"))
    assert len(store.listing().records) == 0
    assert not (tmp_path / "absent").exists()
    with pytest.raises(StoreError, match=r"has no run\.json for run r1"):
        store.read("r1")


def test_newest_first(root: str) -> None:
    store = Store(root)
    for day in (2, 9, 5):
        store.write(record(f"run-{day}", f"2026-01-0{day}T00:00:00Z"), [])
    found = store.listing().records
    assert [r.id for r in found] == ["run-9", "run-5", "run-2"]
    assert [r.id for r in found[1:]] == ["run-5", "run-2"]
    assert found[-1].id == "run-2"


def test_a_taken_id_is_refused_and_the_first_run_kept(root: str) -> None:
    store = Store(root)
    first = store.write(record("r1"), samples(3))
    with pytest.raises(StoreError, match="already has r1"):
        store.write(record("r1"), samples(5))
    assert store.read("r1") == first
    assert len(store.samples("r1")) == 3
    assert [r.id for r in store.listing().records] == ["r1"]


# Ids.


@given(st.text(max_size=40), st.text(max_size=40))
def test_new_ids_are_safe_whatever_the_names(scenario: str, device: str) -> None:
    run_id = new_run_id(scenario, device)
    check_run_id(run_id)
    assert Path("store", run_id).parent == Path("store")
    assert not run_id.startswith(".")


def test_new_id_has_the_promised_form() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone(timedelta(hours=2)))
    start, _, short = new_run_id("Qwen3 14B/../x", "H200", when).rpartition("-")
    assert start == "20260304T030607Z-qwen3-14b-..-x-h200"
    assert len(short) == 6
    naive = new_run_id("s", "d", datetime(2026, 3, 4, 5, 6, 7))
    assert naive.startswith("20260304T050607Z-s-d-")
    ids = {new_run_id("s", "d", datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(50)}
    assert len(ids) > 45


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", "../r1", "/etc/passwd", "a/b", "a\\b", ".tmp-x", "r1\n", "r\0", "x" * 201],
)
def test_ids_cannot_leave_the_store(root: str, bad: str) -> None:
    store = Store(root)
    for use in (store.read, store.samples, lambda i: store.write(record(i), [])):
        with pytest.raises(StoreError, match="is not a run id"):
            use(bad)


# What else lies in a store.


def test_a_listing_names_each_problem_and_goes_on(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for name in ("good", "broken", "newer", "foreign", "no-samples", "no-run", "cut", "renamed",
                 "deep", "wrong-type"):  # fmt: skip
        store.write(record(name), samples(3))
    (tmp_path / "broken" / "run.json").write_text('{"schema": 1, "id": "bro')
    data = json.loads((tmp_path / "newer" / "run.json").read_text())
    data["schema"] = SCHEMA_VERSION + 1
    (tmp_path / "newer" / "run.json").write_text(json.dumps(data))
    (tmp_path / "foreign" / "run.json").write_text('{"hello": [1]}')
    (tmp_path / "no-samples" / "samples.parquet").unlink()
    (tmp_path / "no-run" / "run.json").unlink()
    parquet = (tmp_path / "cut" / "samples.parquet").read_bytes()
    (tmp_path / "cut" / "samples.parquet").write_bytes(parquet[:-20])
    (tmp_path / "renamed").rename(tmp_path / "other-name")
    (tmp_path / "deep" / "run.json").write_text('{"schema": 1, "x": ' + "[" * 100_000)
    data["schema"], data["id"] = SCHEMA_VERSION, "wrong-type"
    data["machine"]["num_cpu_cores"] = "__import__('os').system('true')"
    (tmp_path / "wrong-type" / "run.json").write_text(json.dumps(data))
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad name").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    (tmp_path / ".hidden").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "run.json")
    (tmp_path / "piped" / "samples.parquet").write_bytes(b"")

    listing = store.listing()
    assert [r.id for r in listing.records] == ["good"]
    said = {problem.name: problem.reason for problem in listing.problems}
    for name, words in {
        "broken": "broken JSON",
        "newer": f"schema {SCHEMA_VERSION + 1}",
        "foreign": "not a gapless record",
        "no-samples": "half-copied: samples.parquet is missing",
        "no-run": "half-copied: run.json is missing",
        "cut": "half-copied: samples.parquet has",
        "other-name": "'renamed'",
        "deep": "broken JSON",
        "wrong-type": "num_cpu_cores",
        "empty": "no run.json",
        "bad name": "not a run id",
        "notes.txt": "not a run folder",
        "link": "not a run folder",
        "pipe": "not a run folder",
        "piped": "run.json is missing",
    }.items():
        assert words in said.pop(name)
    assert said == {}
    for problem in listing.problems:
        assert problem.reason.endswith(".")
        assert "\n" not in problem.reason


def test_reading_follows_no_link_and_opens_no_pipe(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    store.write(record("r1"), samples(2))
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    run_file = tmp_path / "store" / "r1" / "run.json"
    run_file.unlink()
    run_file.symlink_to(outside)
    with pytest.raises(StoreError, match=r"run\.json of run r1 .* cannot be read"):
        store.read("r1")
    run_file.unlink()
    os.mkfifo(run_file)
    with pytest.raises(StoreError, match="not a regular file"):
        store.read("r1")
    (tmp_path / "store" / "linked").symlink_to(tmp_path / "store" / "r1")
    with pytest.raises(StoreError, match="links are not followed"):
        store.samples("linked")


def test_oversized_files_are_not_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(record("r1"), samples(2))
    with (tmp_path / "r1" / "run.json").open("r+b") as file:
        file.truncate(MAX_RUN_BYTES + 1)
    with pytest.raises(StoreError, match="larger than the limit"):
        store.read("r1")
    (problem,) = store.listing().problems
    assert "larger than the limit" in problem.reason


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PAR1 this is not one", "damaged or not a Parquet file"),
        (b"", "damaged or not a Parquet file"),
        ({"arm": ["a"], "duration_ms": [1.0]}, "its columns are arm, duration_ms"),
    ],
)
def test_foreign_samples_are_refused(
    tmp_path: Path, content: bytes | dict[str, list[object]], words: str
) -> None:
    store = Store(str(tmp_path))
    store.write(record("r1"), samples(2))
    path = tmp_path / "r1" / "samples.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(pa.table(content), path)
    with pytest.raises(StoreError, match=words):
        store.samples("r1")


def test_samples_with_an_unknown_phase_are_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(record("r1"), samples(2))
    path = tmp_path / "r1" / "samples.parquet"
    table = pq.read_table(path)
    column = table.schema.get_field_index("phase")
    pq.write_table(table.set_column(column, "phase", pa.array(["lunch", "batch"])), path)
    with pytest.raises(StoreError, match="lunch"):
        store.samples("r1")


def test_a_flipped_bit_in_samples_is_noticed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(record("r1"), samples(500))
    path = tmp_path / "r1" / "samples.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        store.samples("r1")


def test_a_figure_that_is_no_number_is_named_before_anything_is_written(root: str) -> None:
    store = Store(root)
    parity = Parity(
        arm="a", baseline="b", quantity="loss", passed=False, bitwise=False, max_abs_difference=1.0,
        max_rel_difference=float("nan"), tolerance=0.0, reason="",
    )  # fmt: skip
    with pytest.raises(StoreError, match=r"record\.parity\[0\]\.max_rel_difference"):
        store.write(msgspec.structs.replace(record("r1"), parity=(parity,)), [])
    assert len(store.listing().records) == 0
    assert store.listing().problems == ()


def test_unknown_fields_of_a_newer_writer_are_ignored(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    stored = store.write(record("r1"), [])
    path = tmp_path / "r1" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "field_of_tomorrow": 1}))
    assert store.read("r1") == stored


# Stores that fail.


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "store"))
    store.write(record("r0"), samples(1))
    real = os.fsync
    for fail_at in range(4):
        calls = iter(range(100))

        def full(descriptor: int, calls=calls, fail_at=fail_at) -> None:
            if next(calls) == fail_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        if fail_at < 3:
            with pytest.raises(StoreError, match="the disk is full"):
                store.write(record("r1"), samples(1))
            assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["r0"]
    monkeypatch.setattr(os, "fsync", real)
    store.write(record("r1"), samples(1))
    assert len(store.listing().records) == 2


def test_a_failing_remote_store_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    store = Store(f"memory://{uuid.uuid4()}")
    real = MemoryFileSystem.pipe_file

    def refuse_run(self: MemoryFileSystem, path: str, value: bytes, **options: object) -> None:
        if path.endswith("run.json"):
            raise RuntimeError("quota")
        real(self, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse_run)
    with pytest.raises(StoreError, match="quota"):
        store.write(record("r1"), samples(1))
    monkeypatch.undo()
    assert store.listing().problems == ()
    store.write(record("r1"), samples(1))
    assert len(store.listing().records) == 1


@pytest.mark.parametrize("bad_root", ["", "no-such-protocol://x", "a\0b"])
def test_a_root_that_is_none_is_refused_at_once(bad_root: str) -> None:
    with pytest.raises(StoreError):
        Store(bad_root)


def test_a_root_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(str(tmp_path / "file"))
    with pytest.raises(StoreError, match="cannot be listed"):
        store.listing()
    with pytest.raises(StoreError, match="itself a file"):
        store.write(record("r1"), [])


def test_a_root_nobody_can_write_is_a_sentence() -> None:
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc, which even root cannot write")
    with pytest.raises(StoreError, match="nothing was left behind"):
        Store("/proc/gapless").write(record("r1"), [])


def test_old_leftovers_are_cleared_by_the_next_writer_and_young_ones_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for name in (".tmp-old", ".tmp-young"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "samples.parquet").write_bytes(b"half")
    long_ago = time.time() - storage.STALE_AFTER_S - 60
    os.utime(tmp_path / ".tmp-old", (long_ago, long_ago))
    assert store.listing().problems == ()
    store.write(record("r1"), [])
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp-young", "r1"]


def test_a_store_is_where_a_path_or_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Store(tmp_path).root == str(tmp_path)
    monkeypatch.setenv("GAPLESS_STORE", str(tmp_path / "team"))
    assert Store().root == str(tmp_path / "team")
    assert len(Store().listing().records) == 0
    monkeypatch.delenv("GAPLESS_STORE")
    assert repr(Store()) == "Store('results')"
