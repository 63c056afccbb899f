"""Whole runs or none, whoever kills a writer or writes at the same time; with real processes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from harness.record.store import Store
from tests.record.stored_runs import record, samples

WRITER = """
import sys
root, runs, checkout, template = sys.argv[1:]
sys.path.insert(0, checkout)
import msgspec
from harness.record.records import RunRecord
from harness.record.store import Store, new_run_id

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
