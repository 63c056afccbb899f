"""The one set-up of a watched step, as audits and the bench use it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable
from harness.audit.emulated.step_session import StepSession
from harness.clock.costs import catalogue_costs
from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
from harness.emulator.device_clock import DeviceClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = 1024


@contextmanager
def session(*, redundancy: bool = True) -> Iterator[StepSession]:
    clock = DeviceClock(catalogue_costs(find_gpu("H100")))
    with EmulatedDevice("H100", shapes_only=True, clock=clock) as device:
        yield StepSession(device, clock, redundancy=redundancy)


def matrix() -> torch.Tensor:
    return torch.empty(SIZE, SIZE, device="cuda")


def read(x: torch.Tensor, times: int = 1) -> None:
    for _ in range(times):
        (x @ x).sum().item()


def test_only_what_happens_between_begin_and_pause_is_counted() -> None:
    with session() as steps:
        x = matrix()
        read(x)
        with steps:
            read(x)
            steps.begin()
            read(x, 2)
            steps.pause()
            read(x, 4)
            steps.begin()
            read(x, 8)
            step = steps.take()
        read(x)
    assert step.counts.num_syncs == 10
    assert step.time is not None
    # The clock tells of the last stretch alone, so that a pause is no part of a step.
    assert len(step.time.figures.waits) == 8


def test_steps_follow_each_other_without_a_gap_on_the_clock() -> None:
    with session() as steps, steps:
        x = matrix()
        steps.begin()
        taken = []
        for times in (1, 2):
            read(x, times)
            taken.append(steps.take())
    first, second = (step.time for step in taken)
    assert first is not None
    assert second is not None
    assert [step.counts.num_syncs for step in taken] == [1, 2]
    assert first.recording.end_ns == second.recording.start_ns
    assert first.recording.start_ns < first.recording.end_ns


def test_a_block_can_be_entered_again_and_leaves_nothing_behind() -> None:
    call, apply, tolist = nn.Module.__call__, nn.Module._apply, torch.Tensor.tolist
    with session() as steps:
        x = matrix()
        within = (nn.Module.__call__, nn.Module._apply, torch.Tensor.tolist)
        for times in (3, 5):
            with steps:
                steps.begin()
                read(x, times)
                assert steps.take().counts.num_syncs == times
            assert not steps.is_watching
            assert (nn.Module.__call__, nn.Module._apply, torch.Tensor.tolist) == within
    assert (nn.Module.__call__, nn.Module._apply, torch.Tensor.tolist) == (call, apply, tolist)


def test_a_block_that_raises_watches_no_more() -> None:
    def fail() -> None:
        with steps:
            steps.begin()
            raise RuntimeError("of the step")

    with session() as steps:
        with pytest.raises(RuntimeError, match="of the step"):
            fail()
        assert not steps.is_watching
        assert steps.take().time is None


@pytest.mark.parametrize("redundancy", [True, False])
def test_a_report_says_what_was_counted_and_on_what(redundancy: bool) -> None:
    with session(redundancy=redundancy) as steps, steps:
        x = matrix()
        steps.begin()
        read(x, 2)
        step = steps.take()
        report = steps.report(step.counts, target="t", steps=1, notes=("more",))
    assert (report.target, report.device) == ("t", "emulated H100 (shapes only)")
    assert report.syncs_per_step == 2
    assert report.notes[-1] == "more"
    assert bool(step.forward) is redundancy


def of_many_layers() -> Callable[[], float]:
    weights = [matrix().normal_() for _ in range(50)]

    def step() -> float:
        x = weights[0]
        for weight in weights[:3]:
            x = x @ weight
        return x.sum().item()

    return step


def test_making_the_model_is_no_part_of_the_modelled_step() -> None:
    """Without a warm-up as well: nothing is recorded until the steps run."""
    first, later = (
        audit_callable(of_many_layers, build=True, warmup=warmup, mode="shapes").timeline
        for warmup in (0, 1)
    )
    assert first.span_ms is not None
    assert first.span_ms == pytest.approx(later.span_ms, rel=0.02)


def test_run_steps_calls_the_step_as_often_as_asked_and_counts_the_last() -> None:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        read(x)

    with EmulatedAudit(mode="shapes", boundary="explicit", steps=2, skip=3) as audit:
        audit.record(False)
        x = matrix()
        read(x)
        audit.run_steps(step)
        read(x)
    assert calls == 5
    assert audit.num_recorded_steps == 2
    assert audit.report.syncs_per_step == 1
