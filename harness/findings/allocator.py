"""Memory given back to the driver, or asked of it, inside the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.findings.rule import Advice, Location, Rule, leave_out
from harness.record.finding import Finding, severity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.record.audit_report import AuditReport

_UNLESS = "It is right where it happens once, between training and evaluation."


def _advise(location: Location) -> Advice:
    return Advice(
        "Freeing the cache waits for the device, and the next step pays for allocating again.",
        (
            leave_out(location, "empty_cache()", "empty_cache"),
            'PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"',
        ),
        _UNLESS,
    )


def from_trace(report: AuditReport) -> Iterator[Finding]:
    """Calls of the driver's allocator in every step of a trace."""
    if report.trace is None or report.steps is None:
        return
    for calls in report.trace.implicit_calls:
        per_step = calls.count / report.steps
        if "Free" not in calls.api or "Host" in calls.api or per_step < 1:
            continue
        severity, ranked_by = severity_of(per_step, None, None, modelled=False)
        yield Finding(
            kind="allocator",
            severity=severity,
            ranked_by=ranked_by,
            confidence="medium",
            why=f"{calls.api} runs in every step and waits for the device: the allocator gives "
            "memory back because it runs short of it, or because the code asks it to.",
            instead=('PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"',),
            unless=_UNLESS,
            count_per_step=per_step,
            blocked_ms=calls.total_ms / report.steps,
        )


RULE = Rule(kind="allocator", advise=_advise)
