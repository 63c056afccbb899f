"""No wait to blame: the device idles because the host cannot launch kernels fast enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.audit.findings.finding import Finding, severity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.audit.report import AuditReport

_LEAST_IDLE = 0.2
"""Share of the span that the device waits for a slow host."""
_LEAST_SMALL = 0.5
"""Share of kernels that take less time than a launch."""


def find(report: AuditReport) -> Iterator[Finding]:
    """At most one: about the whole step, where there is a timeline to tell by."""
    time, details = report.timeline, report.trace
    if details is None or details.small_kernels is None:
        return
    if time.idle_slow_host_ms is None or not time.span_ms:
        return
    idle, small = time.idle_slow_host_ms / time.span_ms, details.small_kernels.count_share
    if idle < _LEAST_IDLE or small < _LEAST_SMALL:
        return
    steps = report.steps or 1
    severity, ranked_by = severity_of(0, time.idle_slow_host_ms, time.span_ms, modelled=False)
    yield Finding(
        kind="launch-bound",
        severity=severity,
        ranked_by=ranked_by,
        confidence="medium",
        why=f"The device idles {idle:.0%} of the time with no wait to blame, and {small:.0%} of "
        "its kernels take less time than their launch.",
        instead=("model = torch.compile(model)  # fewer, larger kernels", "# or a larger batch"),
        unless="A profiler with stacks slows the host down by itself; look at a trace without.",
        count_per_step=sum(kernel.count for kernel in details.top_kernels) / steps,
        exposed_ms=time.idle_slow_host_ms / steps,
    )
