"""All kinds, in the order in which they may claim a wait: special ones first.

Those of other packages, entry points `gapless.findings`, come before all of gapless.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

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
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.plugins import Plugin
    from harness.record.audit_report import AuditReport, Site

    _Finder: TypeAlias = Callable[[AuditReport, list[Site]], Iterator[Finding]]

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


def with_findings(
    report: AuditReport, foreign: Sequence[Plugin[Rule]] | None = None
) -> AuditReport:
    """The report with its findings, costliest first, and the name of a finding at each site.

    Each sync belongs to one finding at most. `foreign`: kinds that claim before those of gapless,
    by default what is installed. Raises `UsageError` where two of them claim one site.
    """
    left = _with_polling_of_trace(report)
    numbers = {id(site): number for number, site in enumerate(left)}
    found: list[Finding] = []
    names: dict[int, str] = {}
    foreign = foreign_rules() if foreign is None else foreign
    special = _foreign_finders(report, tuple(left), foreign)
    for kind, find_in in itertools.chain(special, _finders()):
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


def _finders() -> Iterator[tuple[str, _Finder]]:
    """(kind, what finds it and takes the sites it speaks about), in the order of their claims."""
    yield polling_loop.RULE.kind, polling_loop.RULE.find
    yield rebuilt_metadata.KIND, rebuilt_metadata.find
    for rule in RULES:
        yield rule.kind, rule.find


def _foreign_finders(
    report: AuditReport, sites: Sequence[Site], foreign: Sequence[Plugin[Rule]]
) -> Iterator[tuple[str, _Finder]]:
    """The same of plug-ins. One that raises is named and left out; two that claim one site are an
    error, since the order in which they are installed says nothing."""
    claimed: dict[int, str] = {}
    for plugin in foreign:
        rest = list(sites)
        try:
            list(plugin.value.find(report, rest))
        except Exception as error:  # whatever foreign code does
            plugins.skip(plugin.label, f"{type(error).__name__}: {error}")
            continue
        kept = {id(site) for site in rest}
        for site in sites:
            if id(site) in kept:
                continue
            if id(site) in claimed:
                where = f"{site.file}:{site.line}" if site.file else site.op
                what = f"Two kinds of findings claim {site.kind} at {where}"
                raise plugins.twice(what, claimed[id(site)], plugin.label)
            claimed[id(site)] = plugin.label
        yield plugin.value.kind, plugin.value.find


def _with_polling_of_trace(report: AuditReport) -> list[Site]:
    """The sites; in a trace, those that are read often within one call count as polled."""
    polled = {loop.site for loop in report.trace.polling} if report.trace is not None else set()
    return [
        msgspec.structs.replace(site, kind=SyncKind.EXPERT_POLL) if number in polled else site
        for number, site in enumerate(report.sites)
    ]
