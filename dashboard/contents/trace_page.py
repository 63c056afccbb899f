"""Open a trace: what does a profile of your own say?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.contents.blocks import Code, Download, Head, Metrics, Text, grid
from dashboard.contents.site_blocks import audit_blocks
from harness.counts import counted
from harness.record.attachments import ArmAudit
from harness.record.audit_report import to_json
from harness.tables import figures
from harness.tables.grid import Table, to_csv

if TYPE_CHECKING:
    from dashboard.contents.blocks import Block
    from harness.record.audit_report import AuditReport

HEAD = Head("open", "Open a trace", "Open a trace", "What does a profile of your own say?")


def how_to_open() -> tuple[Block, ...]:
    """Which traces are read, and what does the same without a server."""
    return (
        Text(
            "From torch.profiler on CUDA or ROCm, torch 1.9 or newer. The file is read in a "
            "process of its own and deleted; on your own machine the same audit is:",
            "quiet",
        ),
        Code("gapless audit trace.json.gz"),
    )


def summary(report: AuditReport) -> tuple[Block, ...]:
    """How much the device idles, and what the trace cannot say."""
    timeline = report.timeline
    per = "per step" if report.steps else "in the trace"
    marked = counted(report.steps, "step") if report.steps else "no steps"
    overlap = figures.percent(timeline.overlap, signed=False)
    blocks: list[Block] = [
        Metrics(
            (
                (f"Syncs {per}", figures.count(report.syncs_per_step)),
                ("Span", figures.milliseconds(timeline.span_ms)),
                ("Device idle", figures.milliseconds(timeline.idle_ms)),
                ("Copies hidden under compute", overlap),
            )
        ),
        Text(f"{report.device} · {report.times} · {marked} marked", "quiet"),
        *(Text(note) for note in (*report.notes, *report.unjudged)),
    ]
    if report.api_calls:
        calls = report.api_calls.items()
        table = Table(
            columns=("Call that waits", "Count"),
            rows=tuple((name, f"{number:,}") for name, number in calls),
        )
        blocks.append(grid("calls", table, csv=to_csv(table.columns, list(calls))))
    return tuple(blocks)


def trace_sites(report: AuditReport) -> tuple[Block, ...]:
    """Where the host waits in this trace."""
    return audit_blocks([ArmAudit(arm="trace", report=report)])


def audit_file(report: AuditReport) -> Download:
    """The audit to keep."""
    return Download("Download the audit", "audit.json", to_json(report), "application/json")
