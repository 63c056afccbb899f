"""Which optimization helps against which finding, by the answers that optimizations give."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from harness.errors import UsageError
from harness.plugins import OFF_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.audit_report import AuditReport
    from harness.record.finding import Answer, Finding


def with_answers(report: AuditReport, answers: Sequence[Answer]) -> AuditReport:
    """The report, with its findings naming the optimizations that mend them.

    Raises `UsageError` where two optimizations answer one finding.
    """
    found = tuple(_answered(finding, answers) for finding in report.findings)
    return msgspec.structs.replace(report, findings=found)


def _answered(finding: Finding, answers: Iterable[Answer]) -> Finding:
    fitting = [answer for answer in answers if _fits(answer, finding)]
    # An answer for a known place says more than one for a kind.
    fitting = [answer for answer in fitting if answer.file] or fitting
    if not fitting:
        return finding
    first, *others = fitting
    name = first.optimization.partition("=")[0]
    for other in others:
        if other.optimization.partition("=")[0] != name:
            raise UsageError(
                f"{first.optimization} and {other.optimization} both answer the finding "
                f"{finding.kind} at {finding.file}:{finding.line}; name the package of one in "
                f"{OFF_VARIABLE} to leave it out."
            )
    return msgspec.structs.replace(
        finding,
        optimization=first.optimization,
        why=first.why or finding.why,
        instead=first.instead or finding.instead,
        unless=first.unless or finding.unless,
    )


def _fits(answer: Answer, finding: Finding) -> bool:
    path = (finding.file or "").replace("\\", "/")
    return (
        (not answer.kinds or finding.kind in answer.kinds)
        and answer.file in path
        and re.search(answer.function, finding.function or "") is not None
        and (not answer.phases or not set(answer.phases).isdisjoint(finding.phases))
        and (finding.bytes_per_call or 0) >= answer.least_bytes
    )
