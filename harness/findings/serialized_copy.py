"""A copy that overlaps with nothing: the host waits for it, and compute starts only after it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.counts import counted
from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import call_name, expression, receiver
from harness.record.finding import Finding, severity_of
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.findings.statement import Statement
    from harness.record.audit_report import AuditReport


def _advise(location: Location) -> Advice:
    site = location.site
    if (
        site.kind == SyncKind.D2H_COPY
        and (together := _all_at_once(location.statement)) is not None
    ):
        return Advice(
            "Each of several small tensors is copied by itself, and each copy blocks the host.",
            (together,),
            "One copy at the end of a step that must wait anyway costs nothing more.",
        )
    if site.kind == SyncKind.D2H_COPY:
        return Advice(
            "The copy to the host waits for all that is queued before it.",
            (_with_flag(location.statement) or 'host = x.to("cpu", non_blocking=True)',
             "ready = torch.cuda.Event(); ready.record()  # ready.synchronize() before it is read"),
            "A copy at the end of a step that must wait anyway costs nothing more.",
        )  # fmt: skip
    if site.kind == SyncKind.PAGEABLE_H2D:
        first = "DataLoader(..., pin_memory=True)"
        why = "The copy comes from pageable memory and blocks the host until it is done."
    else:
        first = "# the memory is pinned already"
        why = "The memory is pinned, yet the copy asks the host to wait for it."
    return Advice(
        why + _unread(location),
        (first, _with_flag(location.statement) or "batch = batch.to(device, non_blocking=True)"),
        "A few kilobytes at the start of a step cost little where the device still works on the "
        "previous step.",
    )


def _all_at_once(statement: Statement | None) -> str | None:
    """`torch.stack([x for ...]).tolist()` for `[x.tolist() for ...]`."""
    if statement is None:
        return None

    def change(node: ast.expr) -> ast.expr | None:
        if not isinstance(node, ast.ListComp) or call_name(node.elt) not in ("tolist", "cpu"):
            return None
        each = receiver(node.elt)
        if each is None:
            return None
        loops = ast.unparse(node)[1:-1].removeprefix(ast.unparse(node.elt))
        return expression(f"torch.stack([{ast.unparse(each)}{loops}]).{call_name(node.elt)}()")

    return statement.rewritten(change)


def _unread(location: Location) -> str:
    copies = sum(site.count_per_step for site in location.sites)
    unread = sum(site.unread_per_step or 0 for site in location.sites)
    return f" Nothing reads {unread:g} of {copies:g} results." if unread else ""


def _with_flag(statement: Statement | None) -> str | None:
    if statement is None:
        return None

    def change(node: ast.expr) -> ast.expr | None:
        if call_name(node) not in ("to", "cuda", "copy_", "cpu") or not isinstance(node, ast.Call):
            return None
        if any(keyword.arg == "non_blocking" for keyword in node.keywords):
            return None
        text = ast.unparse(node)
        if text.endswith(".cpu()"):
            return expression(f'{text[:-6]}.to("cpu", non_blocking=True)')
        return expression(f"{text[:-1]}{', ' if node.args else ''}non_blocking=True)")

    return statement.rewritten(change)


def from_trace(report: AuditReport) -> Iterator[Finding]:
    """Copies of a trace that run on a stream with kernels, so that no compute overlaps."""
    details, span = report.trace, report.timeline.span_ms
    if details is None or not details.copies_on_compute_stream or not details.copy_exposed_ms:
        return
    severity, ranked_by = severity_of(
        0, details.copy_exposed_ms, span, modelled=report.times == "modelled"
    )
    if severity == "low":
        return
    copies, steps = details.copies_on_compute_stream, report.steps or 1
    yield Finding(
        kind="serialized-copy",
        severity=severity,
        ranked_by=ranked_by,
        confidence="medium",
        why=f"{counted(copies, 'copy', 'copies')} between host and device on a stream that also "
        "runs kernels, which cannot overlap with them.",
        instead=(
            "with torch.cuda.stream(copies):",
            "    ahead = next_batch.to(device, non_blocking=True)  # pinned",
            "torch.cuda.current_stream().wait_stream(copies)  # only where it is used",
        ),
        unless="Copies that a later step cannot start without gain nothing from another stream.",
        count_per_step=copies / steps,
        exposed_ms=details.copy_exposed_ms / steps,
    )


RULE = Rule(kind="serialized-copy", advise=_advise)
