"""Steps whose many small kernels keep the device waiting, from a trace and from the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from harness.audit.emulated.emulated_audit import audit_callable
from harness.findings.finding_catalogue import with_findings
from harness.record.audit_report import AuditReport, AuditTimeline
from harness.record.finding import Finding, ranked
from harness.record.trace_details import SmallKernels, TraceDetails

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.audit.emulated.emulated_audit import Mode


def launches(idle_ms: float, small: float) -> AuditReport:
    return AuditReport(
        source="trace",
        target="t",
        device="GPU",
        steps=2,
        syncs_per_step=0.0,
        timeline=AuditTimeline(span_ms=100.0, idle_slow_host_ms=idle_ms),
        trace=TraceDetails(
            small_kernels=SmallKernels(threshold_us=10.0, count_share=small, time_share=0.1)
        ),
    )


def test_small_kernels_and_an_idle_device_are_launch_bound() -> None:
    (finding,) = with_findings(launches(40.0, 0.9)).findings
    assert (finding.kind, finding.severity, finding.exposed_ms) == ("launch-bound", "high", 20.0)
    assert with_findings(launches(5.0, 0.9)).findings == ()
    assert with_findings(launches(40.0, 0.1)).findings == ()


def small_steps(num_kernels: int, side: int, *, reading: bool, shapes: bool = False) -> AuditReport:
    """The report of a step that multiplies matrices, and may read a value after each."""

    def build() -> Callable[[], None]:
        weight = torch.ones(side, side, device="cuda", dtype=torch.bfloat16)

        def step() -> None:
            for _ in range(num_kernels):
                product = weight @ weight
                if reading:
                    product[0, 0].item()

        return step

    mode: Mode = "shapes" if shapes else "values"
    return audit_callable(build, build=True, mode=mode, target="small steps")


def test_a_modelled_step_of_many_small_kernels_is_launch_bound() -> None:
    audited = small_steps(600, 8, reading=False)
    (finding,) = [f for f in audited.findings if f.kind == "launch-bound"]

    assert (finding.ranked_by, finding.severity) == ("modelled", "medium")
    assert finding.count_per_step == 600
    assert finding.why.startswith("By the emulator's clock")
    assert audited.timeline.idle_slow_host_ms == finding.exposed_ms
    assert finding.exposed_ms is not None
    assert audited.timeline.idle_ms is not None
    assert 0.9 * audited.timeline.idle_ms < finding.exposed_ms <= audited.timeline.idle_ms


@pytest.mark.parametrize(
    ("num_kernels", "side", "reading"),
    [(600, 8192, False), (100, 8, False)],
    ids=["as many large kernels", "a toy"],
)
def test_what_looks_like_launch_bound_and_is_not(
    num_kernels: int, side: int, reading: bool
) -> None:
    audited = small_steps(num_kernels, side, reading=reading, shapes=True)
    assert "launch-bound" not in {finding.kind for finding in audited.findings}


def test_idle_time_that_waits_explain_is_not_the_launches() -> None:
    launches_alone = small_steps(600, 8, reading=False).timeline
    waits = small_steps(600, 8, reading=True).timeline

    assert launches_alone.idle_slow_host_ms is not None
    assert waits.idle_blocked_host_ms is not None
    assert waits.idle_slow_host_ms is not None
    parts = (waits.idle_blocked_host_ms, waits.idle_slow_host_ms, waits.idle_other_ms or 0)
    assert sum(parts) == pytest.approx(waits.idle_ms)
    assert waits.idle_blocked_host_ms > waits.idle_slow_host_ms


def test_the_whole_step_comes_after_the_places_of_its_severity() -> None:
    shared: dict[str, Any] = {
        "severity": "medium", "ranked_by": "modelled", "confidence": "high", "why": "",
        "instead": (), "unless": "", "count_per_step": 1,
    }  # fmt: skip
    step = Finding(kind="launch-bound", exposed_ms=9.0, **shared)
    place = Finding(kind="scalar-read", exposed_ms=1.0, **shared)
    lesser = msgspec.structs.replace(place, severity="low")

    assert ranked([step, lesser, place]) == (place, step, lesser)
