"""Runs in a real child process that ends well, or is asked to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.bench.interrupts import Interrupts
from harness.bench.plan import with_a_a
from harness.bench.process import child_environment
from harness.bench.runner import run_plan
from harness.errors import UsageError
from harness.record.attachments import Attachments
from harness.record.records import RunRecord
from harness.record.store import Store
from tests.toys.bench_toys import BASELINE, FAST, arm, toy_plan

if TYPE_CHECKING:
    from harness.bench.child_events import Progress


def test_a_run_keeps_no_timeline_where_it_is_not_to() -> None:
    kept = Attachments()
    plan = toy_plan(
        BASELINE, FAST, sync_probe="tests.toys.bench_toys:sync_probe", keep_timelines=False
    )
    run_plan(plan, attachments=kept)
    assert len(kept.audits) == 2
    assert kept.traces == {}


def test_a_whole_run_becomes_a_record_with_verdict_parity_and_memory(tmp_path: Path) -> None:
    arms = with_a_a((BASELINE, FAST, arm("detached")))
    seen: list[Progress] = []
    plan = toy_plan(*arms, sync_probe="tests.toys.bench_toys:sync_probe", margin=0.02)
    kept = Attachments()
    record, samples = run_plan(plan, on_progress=seen.append, attachments=kept)

    assert (record.status, record.reason) == ("complete", None)
    verdicts = {(c.arm, c.phase): c.verdict for c in record.comparisons}
    assert verdicts["fast", "batch"] == "faster"
    assert verdicts["a/a", "batch"] == "same"
    assert not any(name == "detached" for name, _ in verdicts)
    passed = {(p.arm, p.quantity): p.passed for p in record.parity}
    assert passed["fast", "gradients"]
    assert not passed["detached", "gradients"]
    assert {t.arm for t in record.throughput} == {"baseline", "fast", "a/a"}
    assert {m.kind for m in record.memory} == {"tensor-bytes"}
    assert record.syncs[0].source == "modelled"
    assert record.scenario.model == "Toy"
    assert record.machine.num_threads == 1
    assert record.num_samples == len(samples) == 4 * (2 + 1 + 1 + 12 * 3)
    assert record.steadiness.load_before is not None

    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages[-3:] == ["timing", "memory", "syncs"]
    assert any(progress.remaining_s for progress in seen)
    store = Store(str(tmp_path))
    stored = store.write(record, samples, audits=kept.audits, traces=kept.traces)
    assert stored.audited_arms == ("baseline", "fast", "detached", "a/a")
    assert {a.arm: a.report.syncs_per_step for a in store.audits(record.id)}["fast"] == len("fast")
    assert stored.traced_arms == ("baseline", "fast", "detached")
    assert store.trace(stored, "fast") == b"fast"
    assert msgspec.json.decode(msgspec.json.encode(record), type=RunRecord) == record


def test_one_ctrl_c_ends_the_run_after_the_step_and_keeps_what_was_measured() -> None:
    def interrupt_once(progress: Progress) -> None:
        if (progress.block or 0) >= 3 and not interrupts.count:
            signal.raise_signal(signal.SIGINT)

    with Interrupts() as interrupts:
        record, samples = run_plan(
            toy_plan(max_blocks=100_000, budget_s=300),
            on_progress=interrupt_once,
            interrupts=interrupts,
        )
    assert interrupts.count == 1
    assert record.status == "incomplete"
    assert record.reason is not None
    assert record.reason.startswith("Stopped on request during the timed blocks")
    assert record.comparisons[0].num_blocks >= 3
    assert record.num_samples == len(samples)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_kills_a_child_that_does_not_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    interrupts = Interrupts()

    def press_ctrl_c_twice() -> None:
        # Not a guess at a duration: the second follows only when the first has been counted.
        while not pid_file.exists():
            time.sleep(0.01)
        for expected in (1, 2):
            os.kill(os.getpid(), signal.SIGINT)
            while interrupts.count < expected:
                time.sleep(0.01)

    spec = {"build_fault": "hang", "pid_file": str(pid_file)}
    presses = threading.Thread(target=press_ctrl_c_twice)
    with interrupts:
        presses.start()
        record, _ = run_plan(toy_plan(spec=spec, budget_s=300), interrupts=interrupts)
        presses.join()
    assert record.status == "incomplete"
    assert record.reason is not None
    assert record.reason.startswith("Killed by a second Ctrl-C")
    assert _is_gone(int(pid_file.read_text()))


def test_a_caller_may_stop_a_run_from_any_thread() -> None:
    results: list[Any] = []
    blocks: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(
            run_plan(
                toy_plan(max_blocks=100_000, budget_s=300),
                on_progress=lambda progress: blocks.append(progress.block or 0),
                should_stop=lambda: bool(blocks) and max(blocks) >= 2,
            )
        )
    )
    thread.start()
    thread.join()
    record, _ = results[0]
    assert record.status == "incomplete"
    assert record.num_samples > 0


def test_a_callback_that_raises_leaves_no_child_behind(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def explode(progress: Progress) -> None:
        if progress.stage == "warm-up":
            raise KeyError("progress")

    spec = {"fault": {"kind": "hang"}, "pid_file": str(pid_file)}
    with pytest.raises(KeyError):
        run_plan(toy_plan(spec=spec), on_progress=explode)
    assert _is_gone(int(pid_file.read_text()))


def test_the_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = (
        "from tests.toys.bench_toys import toy_plan\n"
        "from harness.bench.runner import run_plan\n"
        f"run_plan(toy_plan(spec={{'fault': {{'kind': 'hang'}}, 'pid_file': {str(pid_file)!r}}}))\n"
    )
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=root)
    _wait_for(lambda: pid_file.exists() and bool(pid_file.read_text()))
    child_pid = int(pid_file.read_text())
    assert not _is_gone(child_pid)
    parent.kill()
    parent.wait()
    _wait_for(lambda: _is_gone(child_pid))


def test_what_a_factory_refuses_is_a_usage_error_of_the_caller() -> None:
    with pytest.raises(UsageError, match="No toy 'yoyo'; there is one"):
        run_plan(toy_plan(spec={"unknown": "yoyo"}))


def test_the_child_sees_the_threads_asked_for_and_no_disturbing_variables() -> None:
    parent = {
        "CUDA_LAUNCH_BLOCKING": "1",
        "COV_CORE_SOURCE": "x",
        "PYTHONDEVMODE": "1",
        "KEEP": "1",
    }
    environment = child_environment(toy_plan(num_threads=3), parent, ["", "/somewhere"])
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["KEEP"] == "1"
    assert not environment.keys() & (parent.keys() - {"KEEP"})
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(Path.cwd()), "/somewhere"]


def _is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def _wait_for(condition: Any, limit_s: float = 60.0) -> None:
    """Wait for something that must come; the limit only ends a test that fails."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
