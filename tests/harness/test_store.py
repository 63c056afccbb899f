"""The store: whole runs or none, whoever kills, fills, races or plants things in it."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
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

from harness import run_index, storage
from harness.errors import StoreError
from harness.records import (
    SCHEMA_VERSION,
    Machine,
    Parity,
    RunRecord,
    Sample,
    ScenarioRecord,
)
from harness.store import MAX_INLINE_SAMPLES, MAX_RUN_BYTES, Store, check_run_id, new_run_id

MACHINE = Machine(
    device="cpu",
    fingerprint="f",
    hostname="host",
    platform="Linux x86_64",
    python="3.11",
    torch="2.13",
    transformers=None,
    gapless="0.1",
    cuda=None,
    cpu_model="cpu",
    num_cpu_cores=2,
    num_threads=1,
    memory_bytes=1 << 30,
    governor=None,
)
SCENARIO = ScenarioRecord(
    name="tiny",
    family="packed-sft",
    model="Tiny",
    fit="narrow",
    dtype="float32",
    attention="sdpa",
    checkpointing=False,
    weights="random",
    adapter="none",
    seed=0,
    config={"num_layers": 2, "rope": None, "name": "tiny"},
    narrowed={"hidden_size": (4096, 64)},
)


def record(run_id: str, created_utc: str = "2026-01-02T03:04:05Z") -> RunRecord:
    return RunRecord(
        id=run_id,
        created_utc=created_utc,
        status="complete",
        command="gapless bench tiny",
        source="measured",
        machine=MACHINE,
        scenario=SCENARIO,
        arms=(),
    )


def samples(count: int) -> list[Sample]:
    return [
        Sample(order=i, block=i // 4 - 1, arm=f"arm {i % 2}", phase="batch",
               duration_ms=0.1 * i + 1e-9, warmup=i < 4)
        for i in range(count)
    ]  # fmt: skip


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a" / "b") if request.param == "local" else f"memory://{uuid.uuid4()}/x"


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
    check_run_id(new_run_id(scenario, device))


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


# Kills and races, with real processes.

WRITER = """
import sys
root, runs, checkout, template = sys.argv[1:]
sys.path.insert(0, checkout)
import msgspec
from harness.records import RunRecord
from harness.store import Store, new_run_id

record = msgspec.json.decode(template, type=RunRecord)
store = Store(root)

def write():
    run_id = new_run_id("tiny", "cpu")
    store.write(msgspec.structs.replace(record, id=run_id), record.samples)

write()
print("ready", flush=True)
for _ in range(int(runs)):
    write()
"""


def writer_command(code: str, root: Path, runs: int) -> list[str]:
    template = msgspec.structs.replace(record("template"), samples=tuple(samples(300)))
    checkout = str(Path(__file__).parents[2])
    return [
        sys.executable,
        "-c",
        code,
        str(root),
        str(runs),
        checkout,
        msgspec.json.encode(template).decode(),
    ]


def start_writer(root: Path, runs: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(writer_command(WRITER, root, runs), stdout=subprocess.PIPE)


def await_first_write(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def test_a_kill_at_any_moment_leaves_whole_runs_only(tmp_path: Path) -> None:
    store, moments = Store(str(tmp_path)), random.Random(5)
    for _ in range(5):
        with start_writer(tmp_path, 100_000) as process:
            await_first_write(process)
            # Not a wait for something to happen: the moment of the kill is what is drawn.
            time.sleep(moments.uniform(0.01, 0.15))
            process.send_signal(signal.SIGKILL)
            process.wait()
        listing = store.listing()
        assert listing.problems == ()
    assert len(listing.records) >= 5
    for found in listing.records:
        assert len(store.samples(found.id)) == 300
        assert len(store.read(found.id).samples or ()) == 300


@pytest.mark.parametrize("call", range(4))
def test_a_kill_between_any_two_steps_of_a_write(tmp_path: Path, call: int) -> None:
    """The child kills itself at its n-th fsync: before, between and after the files."""
    code = f"""
import os, signal
real, calls = os.fsync, iter(range(9))
def fsync(fd):
    if next(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(fd)
os.fsync = fsync
""" + WRITER  # fmt: skip
    done = subprocess.run(writer_command(code, tmp_path, 0), stdout=subprocess.PIPE)
    assert done.returncode == -signal.SIGKILL
    listing = Store(str(tmp_path)).listing()
    assert listing.problems == ()
    # The fourth fsync is that of the root, after the rename.
    assert len(listing.records) == (1 if call == 3 else 0)
    leftovers = [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")]
    assert len(leftovers) == (0 if call == 3 else 1)


def test_writers_at_once_never_collide(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, 29) for _ in range(3)]
    for process in writers:
        with process:
            assert process.wait() == 0
    listing = Store(str(tmp_path)).listing()
    assert (len(listing.records), listing.problems) == (90, ())
    assert not list(tmp_path.glob(".tmp-*"))


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


# The cache of a large store.


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
