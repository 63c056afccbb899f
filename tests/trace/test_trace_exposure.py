"""What waits cost, against a simulator that knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_simulator import LAUNCH_US, WAKE_US, Step, simulate

from harness.audit.trace import audit_trace

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.audit_report import AuditReport
    from harness.record.trace_details import SiteCost

STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.just("launch"), st.integers(1, 200), st.sampled_from([7, 7, 7, 20])),
        st.builds(Step, st.just("wait")),
        st.builds(Step, st.just("work"), st.integers(1, 100)),
        st.builds(Step, st.just("read"), st.integers(1, 10)),
    ),
    min_size=2,
    max_size=25,
)
PROGRAMS = STEPS.filter(lambda steps: steps[0].kind == "launch")


def launch(length_us: int) -> Step:
    return Step("launch", length_us)


def work(length_us: int) -> Step:
    return Step("work", length_us)


WAIT, READ = Step("wait"), Step("read", 2)


def audit(program: list[Step], folder: Path, without: tuple[int, ...] = ()) -> AuditReport:
    return audit_trace(simulate(program, without).write(folder / "trace.json"))


def costs(report: AuditReport) -> tuple[SiteCost, ...]:
    assert report.trace is not None
    return report.trace.sites


def test_a_wait_that_drains_the_queue_costs_the_idle_until_the_next_launch_arrives(
    tmp_path: Path,
) -> None:
    report = audit([launch(100), WAIT, work(10), launch(50)], tmp_path)
    (site,) = report.sites
    # Idle from the drain: the wake-up, the host's work, and the launch.
    assert site.exposed_ms == pytest.approx((WAKE_US + 10 + LAUNCH_US) / 1e3)
    assert report.timeline.idle_ms == site.exposed_ms
    assert report.timeline.idle_blocked_host_ms == site.exposed_ms
    assert report.timeline.idle_slow_host_ms == 0


def test_a_host_that_waits_while_the_device_works_has_lost_nothing_yet(tmp_path: Path) -> None:
    program = [launch(500), Step("launch", 40, 20), WAIT, launch(50)]
    report = audit(program, tmp_path)
    (cost,) = costs(report)
    assert cost.blocked_device_busy_ms == pytest.approx(cost.blocked_ms - WAKE_US / 1e3)
    assert cost.exposed_ms == pytest.approx((WAKE_US + LAUNCH_US) / 1e3)


def test_idle_that_was_there_anyway_is_not_the_waits_doing(tmp_path: Path) -> None:
    report = audit([launch(5), work(1000), WAIT, work(1000), launch(5)], tmp_path)
    (cost,) = costs(report)
    assert cost.blocked_ms == 0
    assert cost.exposed_ms == 0
    assert report.timeline.idle_slow_host_ms == report.timeline.idle_ms


def test_a_wait_saves_no_more_than_it_blocked(tmp_path: Path) -> None:
    report = audit([launch(20), work(10), WAIT, work(300), launch(5)], tmp_path)
    (cost,) = costs(report)
    assert cost.exposed_ms == cost.blocked_ms
    assert cost.idle_to_next_launch_ms > cost.exposed_ms


def test_a_wait_before_another_wait_saves_nothing_for_sure(tmp_path: Path) -> None:
    report = audit([launch(100), READ, WAIT, work(20), launch(100)], tmp_path)
    read = next(cost for cost in costs(report) if cost.api == ("cudaStreamSynchronize",))
    assert read.saving_low_ms == 0


def test_a_pageable_read_and_its_synchronise_are_one_wait(tmp_path: Path) -> None:
    report = audit([launch(100), READ, launch(10), READ, launch(10)], tmp_path)
    (site,) = report.sites
    assert (site.op, site.kind) == ("aten::_local_scalar_dense", "scalar_read")
    assert site.count_per_step == report.syncs_per_step == 2
    assert report.api_calls == {"cudaStreamSynchronize": 2}
    assert site.blocked_ms == pytest.approx(
        (102 + WAKE_US + LAUNCH_US + 10 + 2 + WAKE_US) / 1e3, abs=0.02
    )


@settings(max_examples=60)
@given(PROGRAMS)
def test_the_parts_never_exceed_the_whole(
    tmp_path_factory: pytest.TempPathFactory, program: list[Step]
) -> None:
    run = simulate(program)
    report = audit_trace(run.write(tmp_path_factory.getbasetemp() / "parts.json"))
    timeline = report.timeline
    assert timeline.span_ms == pytest.approx(run.span_us / 1e3)
    assert timeline.busy_ms == pytest.approx(run.busy_us / 1e3)
    assert timeline.idle_ms is not None
    assert report.syncs_per_step == len(run.waits)
    assert sum(site.exposed_ms or 0 for site in report.sites) <= timeline.idle_ms + 1e-9
    reasons = (
        timeline.idle_blocked_host_ms,
        timeline.idle_slow_host_ms,
        timeline.idle_communication_ms,
        timeline.idle_other_ms,
    )
    assert sum(reason or 0 for reason in reasons) == pytest.approx(timeline.idle_ms)
    for cost in costs(report):
        assert 0 <= cost.saving_low_ms <= cost.saving_high_ms + 1e-9
        assert cost.exposed_ms <= cost.blocked_ms + 1e-9
        assert cost.exposed_ms <= cost.idle_to_next_launch_ms + 1e-9


@settings(max_examples=60)
@given(PROGRAMS)
def test_the_truth_without_all_waits_lies_within_the_bounds(
    tmp_path_factory: pytest.TempPathFactory, program: list[Step]
) -> None:
    """One thread, one stream: what the simulator saves when every wait of the program vanishes."""
    program = [Step(s.kind, s.length_us) if s.kind != "read" else Step("wait") for s in program]
    run = simulate(program)
    if not run.waits:
        return
    report = audit_trace(run.write(tmp_path_factory.getbasetemp() / "truth.json"))
    free = simulate(program, range(len(run.waits)))
    saved_ms = (run.span_us - free.span_us) / 1e3
    (cost,) = costs(report)
    assert saved_ms <= cost.saving_high_ms + 1e-9
    assert cost.saving_replayed_ms == pytest.approx(saved_ms, abs=0.02)
