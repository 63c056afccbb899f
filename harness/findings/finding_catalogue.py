"""All kinds, in the order in which they may claim a wait: special ones first.

Those of other packages, entry points `gapless.findings`, come before all of gapless.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from harness import plugins
from harness.errors import UsageError
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
from harness.findings.rule import Rule
from harness.record.finding import Finding, ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.plugins import Plugin
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


@cache
def foreign_rules() -> tuple[Plugin[Rule], ...]:
    """The kinds that other packages add. Raises `UsageError` for a name that is taken."""
    found = plugins.load(plugins.FINDINGS, _checked)
    own = dict.fromkeys(KINDS, polling_loop.RULE)
    plugins.merged("kinds of findings", own, found, lambda rule: rule.kind)
    return found


def _checked(value: object) -> Rule:
    if not isinstance(value, Rule):
        raise UsageError(f"{value!r} is no harness.findings.rule.Rule")
    return value


def find(report: AuditReport, foreign: Sequence[Plugin[Rule]] = ()) -> tuple[Finding, ...]:
    """All findings of a report, dearest first; each wait belongs to one of them at most."""
    left = _with_polling_of_trace(report)
    found = _find_foreign(report, left, foreign)
    found += polling_loop.RULE.find(report, left)
    found += rebuilt_metadata.find(report, left)
    for rule in RULES:
        found += rule.find(report, left)
    found += allocator.from_trace(report)
    found += serialized_copy.from_trace(report)
    found += launch_bound.find(report)
    return ranked(found)


def _find_foreign(
    report: AuditReport, left: list[Site], foreign: Sequence[Plugin[Rule]]
) -> list[Finding]:
    """What plug-ins claim among the sites that are `left`; takes it away. One that raises is named
    and left out. Raises `UsageError` where two claim one site."""
    found: list[Finding] = []
    claimed: dict[int, str] = {}
    for plugin in foreign:
        rest = list(left)
        try:
            findings = list(plugin.value.find(report, rest))
        except Exception as error:  # whatever foreign code does
            plugins.skip(plugin.label, f"{type(error).__name__}: {error}")
            continue
        kept = {id(site) for site in rest}
        for index, site in enumerate(left):
            if id(site) in kept:
                continue
            if index in claimed:
                where = f"{site.file}:{site.line}" if site.file else site.op
                raise plugins.twice(
                    f"Two kinds of findings claim {site.kind} at {where}",
                    claimed[index],
                    plugin.label,
                )
            claimed[index] = plugin.label
        found += findings
    left[:] = [site for index, site in enumerate(left) if index not in claimed]
    return found


def _with_polling_of_trace(report: AuditReport) -> list[Site]:
    """The sites; of a trace those are polled that are read often within one call."""
    polled = {loop.site for loop in report.trace.polling} if report.trace is not None else set()
    return [
        msgspec.structs.replace(site, kind="expert_poll") if number in polled else site
        for number, site in enumerate(report.sites)
    ]


def with_findings(report: AuditReport) -> AuditReport:
    """The report with its findings, those of plug-ins among them."""
    return msgspec.structs.replace(report, findings=find(report, foreign_rules()))
