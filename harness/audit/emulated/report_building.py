"""From counts to the report that every audit gives."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from harness.audit.emulated.site_kinds import refine
from harness.audit.frames import Place, Point, place_of
from harness.findings.module_paths import common_path
from harness.record.audit_report import (
    AuditReport,
    AuditTimeline,
    CopySummary,
    ModelledStep,
    Race,
    RedundantGroup,
    Site,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.emulated.site_counts import (
        CopyKey,
        Counts,
        SiteCount,
        SiteKey,
    )
    from harness.record.sync_kinds import SyncKind

SiteIdentity = tuple[Any, ...]


def build_report(
    counts: Counts,
    *,
    target: str,
    device: str,
    steps: int,
    shapes_only: bool,
    notes: Sequence[str],
    unjudged: Sequence[str] = (),
    redundant_groups: Sequence[RedundantGroup] = (),
    repeated_across_steps: Sequence[RedundantGroup] = (),
    timeline: AuditTimeline | None = None,
    modelled: ModelledStep | None = None,
    races: Sequence[Race] = (),
) -> AuditReport:
    """The report of `steps` recorded steps."""
    sites = _sites(counts.sites, steps)
    waits = tuple(site for site in sites if site.intended is None)
    return AuditReport(
        source="emulated",
        target=target,
        device=device,
        steps=steps,
        syncs_per_step=sum(site.count_per_step * site.syncs_per_call for site in waits),
        sites=waits,
        intended=tuple(site for site in sites if site.intended is not None),
        redundant_groups=tuple(redundant_groups),
        repeated_across_steps=tuple(repeated_across_steps),
        copies=_copies(counts.copies, steps),
        values="shapes" if shapes_only else "values",
        notes=tuple(notes),
        unjudged=tuple(unjudged),
        timeline=timeline or AuditTimeline(),
        modelled=modelled,
        races=tuple(races),
    )


def _sites(counts: dict[SiteKey, SiteCount], steps: int) -> list[Site]:
    merged: dict[SiteIdentity, list[tuple[SiteKey, SiteCount]]] = defaultdict(list)
    for key, count in counts.items():
        user = place_of(key.user) if key.user else None
        library = place_of(key.library) if key.library else None
        kind = _refined(key, count, steps)
        line = (user.file, user.line) if user else None
        within = (library.file, library.function) if library else None
        merged[key.op, kind, key.phase, line, within, key.intended].append((key, count))
    sites = [_site(identity, parts, steps) for identity, parts in merged.items()]
    return sorted(
        sites,
        key=lambda s: (-s.count_per_step * s.syncs_per_call, s.file or "", s.line or 0, s.op),
    )


def _refined(key: SiteKey, count: SiteCount, steps: int) -> SyncKind:
    point = key.user if key.library is None else key.library
    if point is None:
        return key.kind
    return refine(
        key.kind,
        place_of(point),
        repeats=count.calls > steps,
        same_input_in_modules=count.same_input_in_modules,
    )


def _site(identity: SiteIdentity, parts: list[tuple[SiteKey, SiteCount]], steps: int) -> Site:
    op, kind, phase, _, _, intended = identity
    calls = sum(count.calls for _, count in parts)
    syncs = sum(count.syncs for _, count in parts)
    sizes = [count.num_bytes for _, count in parts if count.num_bytes is not None]
    user = _place(parts[0][0].user)
    library = _place(parts[0][0].library)
    shown = user or library
    return Site(
        op=op,
        kind=kind,
        phase=phase,
        count_per_step=calls / steps,
        syncs_per_call=syncs / calls,
        file=shown.file if shown else None,
        line=shown.line if shown else None,
        code=shown.text if shown else None,
        function=shown.function if shown else None,
        module=common_path(path for _, count in parts for path in count.modules),
        library=f"{library.file}:{library.line} {library.function}" if library else None,
        remedy=kind.remedy,
        intended=intended,
        bytes_per_call=round(sum(sizes) / calls) if sizes else None,
        unread_per_step=sum(count.unread for _, count in parts) / steps if sizes else None,
        blocked_ms=_per_step([count.blocked_ns for _, count in parts], steps),
        exposed_ms=_per_step([count.exposed_ns for _, count in parts], steps),
    )


def _per_step(times_ns: Sequence[int | None], steps: int) -> float | None:
    """Milliseconds per step; `None` where there was no clock."""
    known = [time for time in times_ns if time is not None]
    return sum(known) / steps / 1e6 if known else None


def _place(point: Point | None) -> Place | None:
    return place_of(point) if point else None


def _copies(copies: dict[CopyKey, tuple[int, int]], steps: int) -> tuple[CopySummary, ...]:
    return tuple(
        CopySummary(
            direction=key.direction,  # type: ignore[arg-type]  # the same literals by construction
            memory=key.memory,  # type: ignore[arg-type]
            blocking=key.blocking,
            count_per_step=count / steps,
            bytes_per_step=round(num_bytes / steps),
        )
        for key, (count, num_bytes) in sorted(copies.items(), key=lambda item: -item[1][1])
    )
