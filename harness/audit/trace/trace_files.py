"""Audits one trace, or a folder with one trace per rank merged into one report."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.audit.trace.load import load_trace
from harness.audit.trace.trace_audit import analyse, rank_of, report_of
from harness.counts import counted
from harness.errors import UsageError
from harness.findings.finding_catalogue import with_findings
from harness.record.audit_report import AuditReport, AuditTimeline, CopySummary, Site
from harness.record.trace_details import RankUse, TraceDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.audit.trace.limits import TraceLimits

_SUFFIXES = (".json", ".json.gz")


def audit_trace(
    path: str | Path,
    *,
    limits: TraceLimits | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Audit one Kineto trace, or a folder that holds one trace per rank.

    For a folder the report holds means over the ranks, API calls are summed, and `trace.ranks`
    has one row a rank. `on_progress` gets bytes read and bytes in all. Raises `UsageError` where
    there is no trace; damage inside a trace ends up in `notes`.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError(f"there is no trace {path}; give a .json or .json.gz file or a folder")
    if path.is_dir():
        return with_findings(audit_folder(path, limits=limits, on_progress=on_progress))
    trace = load_trace(path, limits=limits, on_progress=on_progress)
    return with_findings(report_of(analyse(trace), str(path)))


def trace_files(folder: Path) -> list[Path]:
    """Trace files of a folder, by name. Raises `UsageError` where there is none."""
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(_SUFFIXES))
    except OSError as error:
        raise UsageError(f"cannot list {folder}: {error.strerror}; check its rights") from error
    if not files:
        raise UsageError(f"{folder} holds no .json or .json.gz file; give a folder of traces")
    return files


def audit_folder(
    folder: Path,
    *,
    limits: TraceLimits | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Audit each trace of a folder by itself and merge the reports. One trace is in memory."""
    reports: list[AuditReport] = []
    rows: list[RankUse] = []
    skipped: list[str] = []
    for path in trace_files(folder):
        try:
            trace = load_trace(path, limits=limits, on_progress=on_progress)
        except UsageError as error:
            skipped.append(f"{path.name} was left out: {error}")
            continue
        report = report_of(analyse(trace), str(path))
        reports.append(report)
        rows.append(_rank_row(path.name, rank_of(trace.metadata), report))
    if not reports:
        raise UsageError(f"no file of {folder} is a Kineto trace ({skipped[0]})")
    if len(reports) == 1:
        return msgspec.structs.replace(
            reports[0], target=str(folder), notes=(*reports[0].notes, *skipped)
        )
    return merge_ranks(str(folder), reports, rows, skipped)


def _rank_row(file: str, rank: int | None, report: AuditReport) -> RankUse:
    details = report.trace or TraceDetails()
    return RankUse(
        file=file,
        rank=rank,
        steps=report.steps,
        syncs_per_step=report.syncs_per_step,
        span_ms=report.timeline.span_ms,
        idle_ms=report.timeline.idle_ms,
        exposed_ms=details.exposed_ms,
        communication_ms=details.communication_ms,
    )


def merge_ranks(
    target: str, reports: Sequence[AuditReport], rows: Sequence[RankUse], skipped: Sequence[str]
) -> AuditReport:
    """Means over the ranks; API calls and the profiler's own are sums."""
    steps = {report.steps for report in reports}
    notes = [f"figures are means over {counted(len(reports), 'rank')}; API calls are sums"]
    if len(steps) > 1:
        notes.append("the ranks hold different numbers of steps")
    notes += sorted({note for report in reports for note in report.notes})
    calls: Counter[str] = Counter()
    for report in reports:
        calls.update(report.api_calls)
    modelled = [report.target for report in reports if report.times == "modelled"]
    if 0 < len(modelled) < len(reports):
        notes.append(f"some of the ranks are modelled, not measured: {', '.join(modelled)}")
    return AuditReport(
        source="trace",
        times="modelled" if modelled else "measured",
        target=target,
        device=", ".join(dict.fromkeys(report.device for report in reports)),
        steps=steps.pop() if len(steps) == 1 else None,
        syncs_per_step=_mean(report.syncs_per_step for report in reports),
        sites=_merge_sites(reports),
        copies=_merge_copies(reports),
        api_calls=dict(calls.most_common()),
        profiler_own=sum(report.profiler_own or 0 for report in reports),
        timeline=AuditTimeline(
            **{
                name: _mean(getattr(report.timeline, name) for report in reports)
                for name in AuditTimeline.__struct_fields__
            }
        ),
        notes=(*notes, *skipped),
        unjudged=tuple(dict.fromkeys(text for report in reports for text in report.unjudged)),
        trace=TraceDetails(
            ranks=tuple(rows),
            blocked_ms=_mean(r.trace.blocked_ms for r in reports if r.trace is not None),
            exposed_ms=_mean(r.trace.exposed_ms for r in reports if r.trace is not None),
            communication_ms=_mean(row.communication_ms for row in rows),
        ),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _merge_sites(reports: Sequence[AuditReport]) -> tuple[Site, ...]:
    groups: defaultdict[tuple[object, ...], list[Site]] = defaultdict(list)
    for report in reports:
        for site in report.sites:
            key = (site.op, site.kind, site.phase, site.file, site.line, site.function, site.module)
            groups[key].append(site)
    num = len(reports)
    merged = []
    for same in groups.values():
        count = sum(site.count_per_step for site in same)
        syncs = sum(site.count_per_step * site.syncs_per_call for site in same)
        merged.append(
            msgspec.structs.replace(
                same[0],
                count_per_step=count / num,
                syncs_per_call=syncs / count,
                blocked_ms=sum(site.blocked_ms or 0.0 for site in same) / num,
                exposed_ms=sum(site.exposed_ms or 0.0 for site in same) / num,
            )
        )
    return tuple(sorted(merged, key=lambda site: -(site.exposed_ms or 0.0)))


def _merge_copies(reports: Sequence[AuditReport]) -> tuple[CopySummary, ...]:
    groups: defaultdict[tuple[object, ...], list[CopySummary]] = defaultdict(list)
    for report in reports:
        for copy in report.copies:
            groups[copy.direction, copy.memory, copy.blocking].append(copy)
    num = len(reports)
    merged = []
    for same in groups.values():
        sized = all(copy.bytes_per_step is not None for copy in same)
        duration = sum(copy.duration_ms or 0.0 for copy in same) / num
        num_bytes = sum(copy.bytes_per_step or 0 for copy in same) / num if sized else None
        merged.append(
            msgspec.structs.replace(
                same[0],
                count_per_step=sum(copy.count_per_step for copy in same) / num,
                bytes_per_step=None if num_bytes is None else round(num_bytes),
                duration_ms=duration,
                bandwidth_gb_per_s=num_bytes / duration / 1e6 if num_bytes and duration else None,
            )
        )
    return tuple(merged)
