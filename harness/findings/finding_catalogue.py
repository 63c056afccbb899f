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
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    rebuilt_metadata.KIND,
    *(rule.kind for rule in RULES),
    "launch-bound",
)


def with_findings(report: AuditReport) -> AuditReport:
    """The report with its findings, costliest first, and the name of a finding at each site.

    Each sync belongs to one finding at most.
    """
    left = _with_polling_of_trace(report)
    numbers = {id(site): number for number, site in enumerate(left)}
    found: list[Finding] = []
    names: dict[int, str] = {}
    for kind, find_in in _finders():
        before = list(left)
        found += find_in(report, left)
        kept = {id(site) for site in left}
        names.update((numbers[id(site)], kind) for site in before if id(site) not in kept)
    found += allocator.from_trace(report)
    found += serialized_copy.from_trace(report)
    found += launch_bound.find(report)
    return msgspec.structs.replace(
        report,
        findings=ranked(found),
        sites=tuple(
            msgspec.structs.replace(site, finding=names.get(number))
            for number, site in enumerate(report.sites)
        ),
    )


def _finders() -> Iterator[tuple[str, Callable[[AuditReport, list[Site]], Iterator[Finding]]]]:
    """(kind, what finds it and takes the sites it speaks about), in the order of their claims."""
    yield polling_loop.RULE.kind, polling_loop.RULE.find
    yield rebuilt_metadata.KIND, rebuilt_metadata.find
    for rule in RULES:
        yield rule.kind, rule.find


def _with_polling_of_trace(report: AuditReport) -> list[Site]:
    """The sites; of a trace those are polled that are read often within one call."""
    polled = {loop.site for loop in report.trace.polling} if report.trace is not None else set()
    return [
        msgspec.structs.replace(site, kind=SyncKind.EXPERT_POLL) if number in polled else site
        for number, site in enumerate(report.sites)
    ]
