"""What a kind of finding is made of: which syncs it claims, and its advice on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from harness.findings.effects import is_only
from harness.findings.known_libraries import known_line
from harness.findings.module_paths import common_path
from harness.findings.statement import Statement, statement_at
from harness.origin import in_library
from harness.record.finding import Confidence, Finding, severity_of
from harness.record.sync_kinds import SyncKind, kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from harness.record.audit_report import AuditReport, Site


class Advice(NamedTuple):
    """What a rule says about one place."""

    why: str
    instead: tuple[str, ...]
    unless: str
    confidence: Confidence = "high"


class Location(NamedTuple):
    """Sites that make one finding, the line that causes them, and its statement."""

    sites: Sequence[Site]
    file: str | None
    line: int | None
    function: str | None
    statement: Statement | None

    @property
    def in_library(self) -> bool:
        """Whether the line is an installed package's, which its user should not edit."""
        if self.file is None:
            return False
        return in_library(self.file) or any(
            site.library is not None and site.library.startswith(f"{self.file}:")
            for site in self.sites
        )

    @property
    def site(self) -> Site:
        """The site with the most syncs."""
        return max(self.sites, key=lambda site: site.count_per_step * site.syncs_per_call)


def leave_out(location: Location, what: str, *calls: str) -> str:
    """Advice to do without `what`, such as `the synchronise`, in words that delete nothing else.

    The whole line may go only where it is the user's and does nothing but make one of `calls`.
    """
    if location.in_library:
        return f"# a library's line: look for its option to leave {what} out, or tell its authors"
    if location.statement is None:
        return f"# where the code is yours: drop {what}"
    if is_only(location.statement, *calls):
        return f"# delete: {location.statement.text()}"
    return f"# drop {what}, and keep the rest of: {location.statement.text()}"


@dataclass(frozen=True)
class Rule:
    """One kind of finding."""

    kind: str
    advise: Callable[[Location], Advice]
    sites: frozenset[SyncKind] | None = None
    """Kinds of syncs it may claim; `None` for those that name this finding as theirs."""
    claims: Callable[[Site, Statement | None], bool] | None = None
    """Which of those syncs it does claim; `None` for all."""
    companions: frozenset[SyncKind] = field(default_factory=frozenset)
    """Kinds of syncs that it claims too, in a function in which it claims another one."""
    by_function: bool = False
    """One finding for each function; else for each line."""

    def find(self, report: AuditReport, left: list[Site]) -> Iterator[Finding]:
        """The findings among the sites in `left`; removes those that it claims from the list."""
        places = {index: cause_of(site) for index, site in enumerate(left)}
        statements = {
            index: None if file is None or line is None else statement_at(file, line)
            for index, (file, line, _) in places.items()
        }
        sites = kinds_of(self.kind) if self.sites is None else self.sites
        claimed = {
            index
            for index, site in enumerate(left)
            if site.kind in sites and (self.claims is None or self.claims(site, statements[index]))
        }
        functions = {(places[i][0], places[i][2]) for i in claimed}
        claimed |= {
            index
            for index, site in enumerate(left)
            if site.kind in self.companions and (places[index][0], places[index][2]) in functions
        }
        groups: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for index in sorted(claimed):
            file, line, function = places[index]
            # Without a line, as in a trace without stacks, op and module tell places apart.
            where = (left[index].op, left[index].module) if line is None else ()
            groups[(file, function if self.by_function else line, *where)].append(index)
        for indices in groups.values():
            file, line, function = places[indices[0]]
            location = Location(
                [left[i] for i in indices], file, line, function, statements[indices[0]]
            )
            yield finding_of(report, self.kind, location, self.advise(location))
        left[:] = [site for index, site in enumerate(left) if index not in claimed]


def cause_of(site: Site) -> tuple[str | None, int | None, str | None]:
    """File, line and function that would have to change: those of the library that caused the sync.

    Lines of torch itself are not to be changed; for them it is the line that called torch.
    """
    if site.library is not None and "/torch/" not in site.library.replace("\\", "/"):
        where, _, function = site.library.partition(" ")
        file, _, line = where.rpartition(":")
        if file and line.isdigit():
            return file, int(line), function or None
    return site.file, site.line, site.function


def finding_of(report: AuditReport, kind: str, location: Location, advice: Advice) -> Finding:
    """The finding at a location. Known lines of libraries get the advice in `known_libraries`."""
    known = known_line(location.file, location.function)
    sites = location.sites
    syncs = sum(site.count_per_step * site.syncs_per_call for site in sites)
    exposed, blocked = _sum(s.exposed_ms for s in sites), _sum(s.blocked_ms for s in sites)
    steps = report.steps or 1
    span = None if report.timeline.span_ms is None else report.timeline.span_ms / steps
    severity, ranked_by = severity_of(syncs, exposed, span, modelled=report.times == "modelled")
    lines = sorted({line for _, line, _ in map(cause_of, sites) if line is not None})
    return Finding(
        kind=kind,
        severity=severity,
        ranked_by=ranked_by,
        confidence=advice.confidence,
        why=advice.why,
        instead=known.instead if known else advice.instead,
        unless=known.unless if known and known.unless else advice.unless,
        file=location.file,
        line=location.line,
        lines=tuple(lines),
        code=_code(location),
        function=location.function,
        module=common_path(s.module for s in sites if s.module is not None),
        phases=tuple(dict.fromkeys(site.phase for site in sites)),
        count_per_step=sum(site.count_per_step for site in sites),
        bytes_per_call=max((site.bytes_per_call or 0 for site in sites), default=0) or None,
        syncs_per_step=syncs,
        exposed_ms=exposed,
        blocked_ms=blocked,
        growth=next((site.growth for site in sites if site.growth), None),
    )


def _code(location: Location) -> str | None:
    if location.statement is not None:
        return location.statement.text()
    return location.site.code


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
