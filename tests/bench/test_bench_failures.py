"""Every way a child can fail becomes a record that says so and keeps what was measured."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import torch

from harness.bench.child import describe_failure, is_out_of_memory
from harness.bench.child_events import Failed, Stage
from harness.bench.run_assembly import Ending, Seen, assemble_record, judge
from harness.bench.runner import run_plan
from harness.errors import WorkloadError
from harness.record.records import RunRecord, Sample, ScenarioRecord
from tests.toys.bench_toys import toy_plan

GIB = 1 << 30
LATE = 16
"""Forwards before a fault: in the middle of the timed blocks."""


def run_faulty(kind: str, **changes: Any) -> tuple[RunRecord, tuple[Sample, ...]]:
    return run_plan(toy_plan(spec={"fault": {"kind": kind, "after": LATE}}, **changes))


def test_an_exception_in_a_step_names_its_place_and_keeps_the_samples() -> None:
    record, samples = run_faulty("raise")
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith("The workload failed during the timed blocks (arm '")
    assert "ValueError: the router (bench_toys.py:" in record.reason
    assert record.reason.endswith(" in fail).")
    assert record.num_samples == len(samples) > 0
    assert record.comparisons[0].num_blocks >= 3
    assert record.scenario.model == "Toy"


def test_running_out_of_memory_says_so_and_what_to_do() -> None:
    record, samples = run_faulty("memory", memory_limit_bytes=4 * GIB)
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith("Out of memory during the timed blocks (arm '")
    assert "use a smaller batch" in record.reason
    assert samples


def test_a_crash_names_the_signal_and_the_frame() -> None:
    record, samples = run_faulty("crash")
    assert record.status == "failed"
    assert record.reason is not None
    assert "crashed with SIGSEGV during the timed blocks" in record.reason
    assert "string_at" in record.reason
    assert samples


def test_a_kill_by_the_system_is_told_as_want_of_memory() -> None:
    record, samples = run_faulty("kill")
    assert record.status == "failed"
    assert record.reason is not None
    assert "killed by the system during the timed blocks" in record.reason
    assert samples


def test_a_child_that_hangs_is_killed_after_the_time_allowed() -> None:
    record, _ = run_plan(toy_plan(spec={"build_fault": "hang"}, timeout_s=2))
    assert record.status == "incomplete"
    assert record.reason is not None
    assert record.reason.startswith("Killed for not ending within 2 s, while ")


def test_a_build_that_fails_becomes_a_record_with_the_outline_of_the_scenario() -> None:
    outline = ScenarioRecord(
        name="toy",
        family="toy",
        model="Toy-120B",
        fit="full",
        dtype="bfloat16",
        attention="none",
        checkpointing=False,
        weights="random",
        adapter="none",
        seed=0,
        config={},
    )
    record, samples = run_plan(toy_plan(spec={"build_fault": "exit"}, outline=outline))
    assert record.status == "failed"
    assert record.reason == (
        "The child ended while the workload was built with exit code 7: gone fishing."
    )
    assert record.scenario == outline
    assert record.comparisons == ()
    assert not samples


def test_without_an_outline_what_was_to_be_built_is_unknown() -> None:
    from datetime import UTC, datetime

    record = assemble_record(
        toy_plan(), Seen(), Ending(status=-11), began=datetime.now(UTC), duration_s=1.0
    )
    assert record.scenario.model == "unknown"
    assert record.reason == "The child crashed with SIGSEGV while it started."


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (RuntimeError("shape mismatch"), False),
        (ValueError("I ran out of memory of it"), False),
    ],
)
def test_failed_allocations_are_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_an_error_for_people_is_passed_on_as_it_is() -> None:
    failed = describe_failure(WorkloadError("Batch 3 is empty; give it a document."))
    assert failed == Failed(kind="error", message="Batch 3 is empty; give it a document.")


def test_a_reason_is_one_sentence() -> None:
    seen = Seen(stage=Stage(name="warm-up", arm="x"))
    seen.add(Failed(kind="error", message="It broke."))
    assert judge(seen, Ending(status=0)) == (
        "failed",
        "The workload failed during warm-up (arm 'x'): It broke.",
    )
