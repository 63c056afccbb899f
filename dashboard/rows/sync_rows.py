"""Syncs: how often and where the host waits for the device, in the baseline and in another arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.rows.listed import Columns
from harness.record.records import Record, Source, SyncCount
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.attachments import ArmAudit
    from harness.record.audit_report import AuditReport, RedundantGroup, Site
    from harness.record.records import RunRecord


class SiteRow(Record, frozen=True, kw_only=True):
    """One place in the code, before and after."""

    place: str
    """`model.py:12 forward`, or the op where no line is known."""
    code: str
    module: str
    op: str
    kind: str
    """Of the finding that speaks about it."""
    phase: str
    before: float
    """Syncs per step in the baseline."""
    after: float | None
    """Syncs per step in the other arm; `None` where no other arm was audited."""
    blocked_before_ms: float | None
    blocked_after_ms: float | None
    exposed_before_ms: float | None
    exposed_after_ms: float | None
    growth: str
    remedy: str


class GroupRow(Record, frozen=True, kw_only=True):
    """One value that is computed again and again."""

    arm: str
    size: int
    first: str
    repeats: str
    ops: str
    syncs: float
    module: str


def count_rows(record: RunRecord) -> tuple[SyncCount, ...]:
    """What the record itself counted, arms in their order."""
    position = {arm.name: n for n, arm in enumerate(record.arms)}
    return tuple(sorted(record.syncs, key=lambda s: position.get(s.arm, len(position))))


def site_rows(before: AuditReport, after: AuditReport | None) -> tuple[SiteRow, ...]:
    """Sites of both audits, joined by place, op, kind and phase; the costliest first."""
    old, new = _by_key(before.sites), _by_key(after.sites if after else ())
    rows = [
        _site_row(old.get(key, []), new.get(key, []), audited=after is not None)
        for key in dict.fromkeys([*old, *new])
    ]
    return tuple(
        sorted(rows, key=lambda r: (-(r.exposed_before_ms or 0), -r.before, -(r.after or 0)))
    )


def fewest(audits: Sequence[ArmAudit]) -> ArmAudit:
    """The arm that waits least often: what the baseline is shown beside unless asked otherwise."""
    return min(audits, key=lambda audit: total(audit.report.sites))


def group_rows(audit: ArmAudit) -> tuple[GroupRow, ...]:
    """Values computed more than once, most repeated first."""
    groups: Sequence[RedundantGroup] = audit.report.redundant_groups
    return tuple(
        GroupRow(
            arm=audit.arm,
            size=group.size,
            first=group.first,
            repeats=", ".join(group.repeats),
            ops=" > ".join(group.ops),
            syncs=group.syncs,
            module=group.module or figures.UNKNOWN,
        )
        for group in sorted(groups, key=lambda group: -group.size)
    )


def in_words(rows: Sequence[SyncCount]) -> str:
    """What a chart of these rows shows, for those who cannot see it."""
    return "; ".join(f"{r.arm}, {r.phase}: {figures.count(r.count)} per step" for r in rows)


def source_of(report: AuditReport) -> Source:
    """An emulated audit models, as does the trace of a modelled timeline; others were timed."""
    return report.times or "measured"


def place_of(site: Site) -> str:
    """`model.py:12 forward`, or the op where no line is known."""
    if site.file is None:
        return site.function or site.op
    name = site.file.replace("\\", "/").rsplit("/", 1)[-1]
    line = f":{site.line}" if site.line is not None else ""
    return f"{name}{line} {site.function or ''}".rstrip()


_Key = tuple[str | None, int | None, str, str, str, str | None]


def _by_key(sites: Sequence[Site]) -> dict[_Key, list[Site]]:
    found: dict[_Key, list[Site]] = {}
    for site in sites:
        key = (site.file, site.line, site.op, site.kind, site.phase, site.module)
        found.setdefault(key, []).append(site)
    return found


def _site_row(old: Sequence[Site], new: Sequence[Site], *, audited: bool) -> SiteRow:
    site = (old or new)[0]
    blocked_ms = _total([s.blocked_ms for s in old])
    exposed_ms = _total([s.exposed_ms for s in old])
    gone = audited and not new
    return SiteRow(
        place=place_of(site),
        code=site.code or "",
        module=site.module or figures.UNKNOWN,
        op=site.op,
        kind=site.name,
        phase=site.phase,
        before=total(old),
        after=total(new) if audited else None,
        blocked_before_ms=blocked_ms,
        blocked_after_ms=0.0 if gone and blocked_ms else _total([s.blocked_ms for s in new]),
        exposed_before_ms=exposed_ms,
        exposed_after_ms=0.0 if gone and exposed_ms else _total([s.exposed_ms for s in new]),
        growth=site.growth or figures.UNKNOWN,
        remedy=site.remedy or site.kind.remedy,
    )


def total(sites: Sequence[Site]) -> float:
    """Syncs per step at these places."""
    return sum(site.count_per_step * site.syncs_per_call for site in sites)


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


COUNT_COLUMNS: Columns[SyncCount] = Columns(
    {
        "Arm": lambda row: row.arm,
        "Phase": lambda row: row.phase,
        "Syncs per step": lambda row: figures.count(row.count),
        "Host blocked": lambda row: figures.milliseconds(row.blocked_ms),
        "Device idle because of it": lambda row: figures.milliseconds(row.exposed_ms),
        "Source": lambda row: row.source,
        "Counted by": lambda row: row.method,
    }
)
SITE_COLUMNS: Columns[SiteRow] = Columns(
    {
        "Place": lambda row: row.place,
        "Code": lambda row: row.code,
        "Module": lambda row: row.module,
        "Kind": lambda row: row.kind,
        "Phase": lambda row: row.phase,
        "Before": lambda row: figures.count(row.before),
        "After": lambda row: figures.count(row.after),
        "Exposed before": lambda row: figures.milliseconds(row.exposed_before_ms),
        "Exposed after": lambda row: figures.milliseconds(row.exposed_after_ms),
        "Growth": lambda row: row.growth,
        "Remedy": lambda row: row.remedy,
    }
)
GROUP_COLUMNS: Columns[GroupRow] = Columns(
    {
        "Times computed": lambda row: str(row.size),
        "First": lambda row: row.first,
        "Again at": lambda row: row.repeats,
        "Ops": lambda row: row.ops,
        "Syncs in repeats": lambda row: figures.count(row.syncs),
        "Module": lambda row: row.module,
        "Arm": lambda row: row.arm,
    }
)
