"""What the virtual clock says about an audited step, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.counts import counted
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.record.audit_report import AuditReport

_LEAST_SHARE = 0.001


def modelled_lines(report: AuditReport, short: Callable[[str], str]) -> Iterator[str]:
    """The modelled step, its ceiling, and what sites cost on each GPU; `short` shortens a path."""
    step = report.modelled
    if step is None:
        return
    ceiling = figures.milliseconds(step.ceiling_ms)
    yield (
        f"Modelled step on {step.gpu}: {figures.milliseconds(step.step_ms)}; {ceiling} at the "
        "ceiling, with no syncs and all copies hidden."
    )
    if step.without_ms is not None:
        places = ", ".join(_short(place, short) for place in step.without)
        less = figures.percent(1 - step.without_ms / step.step_ms, signed=False)
        yield f"Without {places}: {figures.milliseconds(step.without_ms)}, {less} less."
    for place in dict.fromkeys(share.place for share in step.shares):
        costs = [
            f"{figures.percent(share.share, signed=False)} of the step on {share.gpu}"
            for share in step.shares
            if share.place == place and share.share >= _LEAST_SHARE
        ]
        if costs:
            yield f"{_short(place, short)} costs {'; '.join(costs)}."


def race_lines(report: AuditReport, short: Callable[[str], str]) -> Iterator[str]:
    """One line a race."""
    for race in report.races:
        first, second = _short(race.first, short), _short(race.second, short)
        times = counted(race.count, "time")
        yield f"{race.kind}, {times}: {second} does not wait for {first}"


def _short(place: str, short: Callable[[str], str]) -> str:
    file, colon, rest = place.partition(":")
    return f"{short(file)}{colon}{rest}" if colon else place
