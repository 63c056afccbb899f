"""Two audits side by side: A, B, and the figures that differ."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from harness.errors import NotComparableError
from harness.record.audit_report import Times
from harness.record.records import Record
from harness.record.trace_details import TraceDetails

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.record.audit_report import AuditReport, Site

MOVED_SHARE = 0.01
"""A figure that differs by no more than this share of the larger one has not moved."""


class Compared(Record, frozen=True, kw_only=True):
    """One figure in both audits; `None` where an audit does not know it."""

    group: str
    """`summary`, `syncs`, `exposed`, `kernels`, `copies` or `api calls`."""
    name: str
    unit: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """B minus A."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def moved(self) -> bool:
        """Whether the two differ by more than `MOVED_SHARE`, or only one is known."""
        if self.a is None or self.b is None:
            return self.a is not self.b
        return abs(self.b - self.a) > MOVED_SHARE * max(abs(self.a), abs(self.b))


class AuditComparison(Record, frozen=True, kw_only=True):
    """What differs between two audits."""

    target_a: str
    target_b: str
    times_a: Times | None = None
    """Whether the times of A were measured or modelled."""
    times_b: Times | None = None
    rows: tuple[Compared, ...]
    num_compared: int
    """Figures looked at, those that did not move included."""
    notes: tuple[str, ...] = ()


def compare_audits(a: AuditReport, b: AuditReport, *, everything: bool = False) -> AuditComparison:
    """Compare two audits; only figures that moved unless `everything`.

    Counts and times are per step. Raises `NotComparableError` where one audit has steps and the
    other has none, as nothing is then per the same thing.
    """
    if (a.steps is None) != (b.steps is None):
        without = a.target if a.steps is None else b.target
        raise NotComparableError(
            f"{without} marks no steps and the other audit does, so their figures are not per the "
            "same thing; record both with a profiler schedule and profiler.step()"
        )
    notes = []
    if a.source != b.source:
        notes.append(f"A is {a.source}, B is {b.source}: compare counts, not times")
    if a.times != b.times:
        notes.append(f"A is {a.times}, B is {b.times}: compare counts, not times")
    elif a.times == "modelled":
        notes.append("times of A and B are modelled by the emulator's clock, not measured")
    if a.device != b.device:
        notes.append(f"A ran on {a.device}, B on {b.device}")
    rows = [
        *_summary(a, b),
        *_sites(a, b),
        *_by_name(
            "kernels",
            "ms/step",
            {k.name: k.total_ms / (a.steps or 1) for k in _details(a).top_kernels},
            {k.name: k.total_ms / (b.steps or 1) for k in _details(b).top_kernels},
        ),
        *_by_name("copies", "per step", _copies(a), _copies(b), absent=0.0),
        *_by_name(
            "api calls",
            "per step",
            {name: count / (a.steps or 1) for name, count in a.api_calls.items()},
            {name: count / (b.steps or 1) for name, count in b.api_calls.items()},
            absent=0.0,
        ),
    ]
    return AuditComparison(
        target_a=a.target,
        target_b=b.target,
        times_a=a.times,
        times_b=b.times,
        rows=tuple(row for row in rows if everything or row.moved),
        num_compared=len(rows),
        notes=tuple(notes),
    )


def _details(report: AuditReport) -> TraceDetails:
    return report.trace or TraceDetails()


def _summary(a: AuditReport, b: AuditReport) -> Iterable[Compared]:
    def per_step(report: AuditReport, value: float | None) -> float | None:
        return None if value is None else value / (report.steps or 1)

    def row(name: str, unit: str, left: float | None, right: float | None) -> Compared:
        return Compared(group="summary", name=name, unit=unit, a=left, b=right)

    yield row("steps", "", a.steps, b.steps)
    yield row("syncs", "per step", a.syncs_per_step, b.syncs_per_step)
    for name in ("span_ms", "busy_ms", "idle_ms", "idle_blocked_host_ms", "idle_slow_host_ms"):
        left, right = (per_step(r, getattr(r.timeline, name)) for r in (a, b))
        yield row(name.removesuffix("_ms").replace("_", " "), "ms/step", left, right)
    for name in ("blocked_ms", "exposed_ms", "communication_ms", "communication_exposed_ms"):
        left, right = (per_step(r, getattr(_details(r), name)) for r in (a, b))
        yield row(name.removesuffix("_ms").replace("_", " "), "ms/step", left, right)
    yield row("copy overlap", "share", a.timeline.overlap, b.timeline.overlap)
    yield row(
        "communication hidden",
        "share",
        a.timeline.communication_hidden,
        b.timeline.communication_hidden,
    )
    small_a, small_b = _details(a).small_kernels, _details(b).small_kernels
    yield row(
        "small kernels",
        "share of count",
        small_a.count_share if small_a is not None else None,
        small_b.count_share if small_b is not None else None,
    )


def _site_name(site: Site) -> str:
    # Not the line number: lines move when a file is edited.
    place = " ".join(part for part in (site.file, site.function, site.module) if part)
    return f"{site.op} {site.kind} {site.phase}" + (f" in {place}" if place else "")


def _sites(a: AuditReport, b: AuditReport) -> Iterable[Compared]:
    def totals(report: AuditReport) -> tuple[dict[str, float], dict[str, float]]:
        syncs: defaultdict[str, float] = defaultdict(float)
        exposed: defaultdict[str, float] = defaultdict(float)
        for site in report.sites:
            syncs[_site_name(site)] += site.count_per_step * site.syncs_per_call
            if site.exposed_ms is not None:
                exposed[_site_name(site)] += site.exposed_ms
        return syncs, exposed

    syncs_a, exposed_a = totals(a)
    syncs_b, exposed_b = totals(b)
    yield from _by_name("syncs", "per step", syncs_a, syncs_b, absent=0.0)
    yield from _by_name("exposed", "ms/step", exposed_a, exposed_b)


def _copies(report: AuditReport) -> dict[str, float]:
    counts: defaultdict[str, float] = defaultdict(float)
    for copy in report.copies:
        waits = {True: "blocking", False: "not blocking", None: "blocking unknown"}[copy.blocking]
        counts[f"{copy.direction} {copy.memory}, {waits}"] += copy.count_per_step
    return counts


def _by_name(
    group: str,
    unit: str,
    left: dict[str, float],
    right: dict[str, float],
    absent: float | None = None,
) -> Iterable[Compared]:
    rows = [
        Compared(
            group=group, name=name, unit=unit, a=left.get(name, absent), b=right.get(name, absent)
        )
        for name in dict.fromkeys((*left, *right))
    ]
    return sorted(rows, key=lambda row: -abs((row.b or 0.0) - (row.a or 0.0)))
