"""All kinds, in the order in which they may claim a wait: special ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.findings import (
    allocator,
    data_dependent_shape,
    explicit_synchronize,
    host_built_tensor,
    launch_bound,
    optimizer_step_on_device,
    pageable_async_copy,
    polling_loop,
    rebuilt_metadata,
    scalar_read,
    serialized_copy,
    tensor_index,
    unneeded_copy,
    validation_check,
)
from harness.record.finding import Finding, ranked

if TYPE_CHECKING:
    from harness.findings.rule import Rule
    from harness.record.audit_report import AuditReport, Site

RULES: tuple[Rule, ...] = (
    unneeded_copy.RULE,
    optimizer_step_on_device.RULE,
    validation_check.RULE,
    explicit_synchronize.RULE,
    allocator.RULE,
    pageable_async_copy.RULE,
    host_built_tensor.RULE,
    serialized_copy.RULE,
    tensor_index.RULE,
    data_dependent_shape.RULE,
    scalar_read.RULE,
)

KINDS: tuple[str, ...] = (
    polling_loop.RULE.kind,
    "rebuilt-metadata",
    *(rule.kind for rule in RULES),
    "launch-bound",
)


def find(report: AuditReport) -> tuple[Finding, ...]:
    """All findings of a report, dearest first; each wait belongs to one of them at most."""
    left = _with_polling_of_trace(report)
    found = list(polling_loop.RULE.find(report, left))
    found += rebuilt_metadata.find(report, left)
    for rule in RULES:
        found += rule.find(report, left)
    found += allocator.from_trace(report)
    found += serialized_copy.from_trace(report)
    found += launch_bound.find(report)
    return ranked(found)


def _with_polling_of_trace(report: AuditReport) -> list[Site]:
    """The sites; of a trace those are polled that are read often within one call."""
    polled = {loop.site for loop in report.trace.polling} if report.trace is not None else set()
    return [
        msgspec.structs.replace(site, kind="expert_poll") if number in polled else site
        for number, site in enumerate(report.sites)
    ]


def with_findings(report: AuditReport) -> AuditReport:
    """The report with its findings."""
    return msgspec.structs.replace(report, findings=find(report))
