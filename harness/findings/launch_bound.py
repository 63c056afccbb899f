"""The device idles without a sync, because the host cannot launch kernels fast enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.record.finding import Finding, severity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.record.audit_report import AuditReport
    from harness.record.trace_details import SmallKernels

_LEAST_IDLE = 0.2
"""Share of the span that the device waits for a slow host."""
_LEAST_SMALL = 0.5
"""Share of kernels that take less time than a launch."""
_LEAST_MODELLED_KERNELS = 500
"""Fewest kernels of a modelled step: a smaller model says nothing about a real one."""


def find(report: AuditReport) -> Iterator[Finding]:
    """At most one finding, on the whole step; none without a timeline."""
    time, kernels = report.timeline, _kernels(report)
    if kernels is None or time.idle_slow_host_ms is None or not time.span_ms:
        return
    idle = time.idle_slow_host_ms / time.span_ms
    if idle < _LEAST_IDLE or kernels.count_share < _LEAST_SMALL:
        return
    steps = report.steps or 1
    modelled = report.times == "modelled"
    num_kernels = _num_kernels(report, kernels)
    if modelled and num_kernels < _LEAST_MODELLED_KERNELS:
        return
    severity, ranked_by = severity_of(0, time.idle_slow_host_ms, time.span_ms, modelled=modelled)
    if report.values == "values" and severity == "high":
        severity = "medium"  # a model small enough to compute here is often a stand-in for another
    yield Finding(
        kind="launch-bound",
        severity=severity,
        ranked_by=ranked_by,
        confidence="low" if modelled else "medium",
        why=_why(idle, kernels, modelled=modelled),
        instead=(
            "model = torch.compile(model)  # fewer, larger kernels",
            "torch.optim.AdamW(..., fused=True)  # one launch for many parameters",
            "# or a larger batch",
        ),
        unless=(
            "A model smaller than the one you train looks launch-bound: audit the real size with "
            "--shapes. Launch costs are typical ones; gapless calibrate measures a GPU's own."
            if modelled
            else "Profiling with stacks slows the host down; look at a trace without stacks."
        ),
        count_per_step=num_kernels,
        exposed_ms=time.idle_slow_host_ms / steps,
    )


def _kernels(report: AuditReport) -> SmallKernels | None:
    if report.trace is not None:
        return report.trace.small_kernels
    return None if report.modelled is None else report.modelled.small_kernels


def _num_kernels(report: AuditReport, kernels: SmallKernels) -> float:
    """Kernels in one step: the model covers one step, a trace may hold several."""
    steps = (report.steps or 1) if report.trace is not None else 1
    return (kernels.num_kernels or 0) / steps


def _why(idle: float, kernels: SmallKernels, *, modelled: bool) -> str:
    by_model = "By the emulator's clock the device idles" if modelled else "The device idles"
    return (
        f"{by_model} {idle:.0%} of the time without a sync as the cause, and "
        f"{kernels.count_share:.0%} of its kernels take less time than their launch."
    )
