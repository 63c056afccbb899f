"""The same value computed again: per layer, in recompute, per step. Compute it once, pass it on."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from harness.clock.calibration import costs_for
from harness.clock.gpus import find_gpu
from harness.counts import counted
from harness.findings.effects import updates
from harness.findings.known_libraries import known_line
from harness.findings.module_paths import common_path
from harness.findings.rule import cause_of
from harness.findings.statement import Statement, statement_at
from harness.findings.tensor_index import bounds_advice
from harness.record.finding import Finding, severity_of
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.record.audit_report import AuditReport, RedundantGroup, Site

KIND = "rebuilt-metadata"
_UPLOAD = ("aten::_to_copy",)
_SMALL_UPLOAD_BYTES = 1 << 16
_READ = "aten::_local_scalar_dense"


def find(report: AuditReport, left: list[Site]) -> Iterator[Finding]:
    """One finding for each line whose value is computed again; removes the syncs it explains.

    Uploads of a host tensor that lives on are left to `host-built-tensor`.
    """
    groups = [g for g in report.redundant_groups if g.ops != _UPLOAD]
    for same in _by_place(groups):
        lines = {line for g in same for line in (g.first, *g.repeats)}
        sites = [site for site in left if _place_of(site) in lines]
        if _is_of_another_kind(same, sites):
            continue
        yield _finding(report, same, sites)
        left[:] = [site for site in left if site not in sites]
    for same in _by_place(report.repeated_across_steps):
        yield _finding(report, same, [])
    if report.trace is not None:
        yield from _uploads_of_trace(report)


def _by_place(groups: Sequence[RedundantGroup]) -> Iterator[list[RedundantGroup]]:
    places: defaultdict[tuple[str, tuple[str, ...]], list[RedundantGroup]] = defaultdict(list)
    for group in groups:
        places[group.first, group.ops].append(group)
    yield from places.values()


def _is_of_another_kind(groups: Sequence[RedundantGroup], sites: Sequence[Site]) -> bool:
    """Whether these are reads alone, mostly of values not read before, or claimed already."""
    if any(set(group.ops) != {_READ} for group in groups):
        return False
    if all(group.module is None for group in groups) and not any(
        site.kind == SyncKind.SLICE_BOUND_READ for site in sites
    ):
        return True  # one value read twice in a loop of the user's: a scalar read like others
    waits = sum(site.count_per_step * site.syncs_per_call for site in sites)
    return not sites or 2 * sum(group.syncs for group in groups) < waits


def _place_of(site: Site) -> str:
    file, line, _ = cause_of(site)
    return f"{file}:{line}"


def _finding(
    report: AuditReport, groups: Sequence[RedundantGroup], sites: Sequence[Site]
) -> Finding:
    first = groups[0]
    file, _, number = first.first.rpartition(":")
    line = int(number) if number.isdigit() else None
    statement = None if line is None else statement_at(file, line)
    function = statement.function.name if statement and statement.function else None
    known = known_line(file, function)
    # A wait that another line makes, on reading the value, belongs to that line's finding.
    syncs = sum(site.count_per_step * site.syncs_per_call for site in sites)
    steps = report.steps or 1
    exposed = [s.exposed_ms for s in sites if s.exposed_ms is not None]
    span = None if report.timeline.span_ms is None else report.timeline.span_ms / steps
    launch_ms = _launch_ms(report, groups) if not sites else None
    severity, ranked_by = severity_of(
        syncs,
        sum(exposed) if exposed else _lost(report, launch_ms),
        span,
        modelled=report.times == "modelled",
    )
    # Code without a file, as from `python -c`, has places without a line.
    places = (place.rpartition(":") for place in first.repeats)
    lines = {int(n) for f, _, n in places if f == file and n.isdigit()}
    return Finding(
        kind=KIND,
        severity=severity,
        ranked_by=ranked_by,
        confidence="medium" if first.across_steps else "high",
        why=_why(groups),
        instead=known.instead if known else _instead(statement, first),
        unless=_unless(first),
        file=file or None,
        line=line,
        lines=tuple(sorted(lines | ({line} if line is not None else set()))),
        code=statement.text() if statement else None,
        function=function,
        module=common_path(g.module for g in groups if g.module is not None),
        phases=tuple(dict.fromkeys(site.phase for site in sites)) or ("forward",),
        count_per_step=sum(1 if group.across_steps else group.size for group in groups),
        syncs_per_step=syncs,
        exposed_ms=sum(exposed) if exposed else None,
        launch_ms=launch_ms,
        across_steps=first.across_steps,
        growth=next((site.growth for site in sites if site.growth), None),
    )


def _launch_ms(report: AuditReport, groups: Sequence[RedundantGroup]) -> float | None:
    """Host time of the repeats' launches by the clock of the audit; `None` where it had none."""
    if report.modelled is None or any(group.launches is None for group in groups):
        return None
    host = costs_for(find_gpu(report.modelled.gpu)).host
    return sum(group.launches or 0 for group in groups) * host.eager_ns / 1e6


def _lost(report: AuditReport, launch_ms: float | None) -> float | None:
    """The part of it in which the device idles: at most its idle time due to a slow host."""
    slow_ms = report.timeline.idle_slow_host_ms
    if launch_ms is None or slow_ms is None:
        return None
    return min(launch_ms, slow_ms / (report.steps or 1))


def _why(groups: Sequence[RedundantGroup]) -> str:
    first = groups[0]
    ops = ", ".join(op.removeprefix("aten::").strip("_") for op in first.ops[:4])
    more = "" if len(first.ops) <= 4 else f" and {len(first.ops) - 4} more"
    if first.across_steps:
        return f"Computed again in every step ({ops}{more}), from buffers and constants alone."
    times = counted(first.size, "time")
    times += f" in each of {counted(len(groups), 'place')}" if groups[1:] else ""
    syncs = sum(group.syncs for group in groups)
    waiting = f", and the repeats cause {counted(syncs, 'sync')} per step" if syncs else ""
    one = syncs <= sum(group.size - 1 for group in groups)
    same = "The same value is" if one else "The same values are"
    return f"{same} computed {times} ({ops}{more}) from equal inputs{waiting}."


def _instead(statement: Statement | None, group: RedundantGroup) -> tuple[str, ...]:
    if set(group.ops) == {_READ}:
        return bounds_advice(statement).instead
    text = statement.text() if statement is not None else "metadata = ..."
    if statement is not None and updates(statement):
        return (f"# compute the value once, and keep the rest of: {text}",)
    if group.across_steps:
        return (f"{text}  # once per length; keep it as a buffer, or cache it by shape",)
    name = _assigned(statement) or "value"
    if group.module is None:
        return (f"{text}  # once; use {name} again",)
    return (
        f"{text}  # once per batch, before the first layer",
        f"h = layer(h, {name})  # pass it on; recompute gets it, too",
    )


def _assigned(statement: Statement | None) -> str | None:
    node = statement.node if statement is not None else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return ast.unparse(node.targets[0]).strip("()")
    return None


def _unless(group: RedundantGroup) -> str:
    if group.across_steps:
        return "Where lengths vary by batch, a cache by shape grows for the sake of a few kernels."
    if group.syncs:
        return "With two layers it saves one sync."
    return "No sync is involved: only kernels are saved, which a compiler may fuse away."


def _uploads_of_trace(report: AuditReport) -> Iterator[Finding]:
    """Equal small uploads from one place of a trace, several in a step."""
    assert report.trace is not None
    steps = report.steps or 1
    for upload in report.trace.repeated_uploads:
        # A batch has many tensors, too, but its loop is rarely a line of Python in the stack.
        small = upload.bytes_per_copy <= _SMALL_UPLOAD_BYTES
        if not small or ".py" not in (upload.where or "") or upload.count_per_step < 2:
            continue
        severity, ranked_by = severity_of(upload.count_per_step, None, None, modelled=False)
        yield Finding(
            kind=KIND,
            severity=severity,
            ranked_by=ranked_by,
            confidence="low",
            why=f"{counted(upload.count_per_step, 'upload')} of one shape and "
            f"{counted(upload.bytes_per_copy, 'byte')} in each step at {upload.where}: likely the "
            "same data, layer by layer.",
            instead=("# upload once per batch, before the first layer, and pass the tensor on",),
            unless="The trace does not show the data; check whether it differs.",
            function=upload.where,
            count_per_step=upload.count_per_step,
            blocked_ms=upload.total_ms / steps,
        )
