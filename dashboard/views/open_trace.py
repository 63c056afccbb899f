"""Open a trace: what does a profile of your own say?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.lane_view import show_timelines
from dashboard.plain import markdown_text
from dashboard.site_tables import show_audits
from dashboard.trace_child import MAX_UPLOAD_BYTES, audit_upload
from harness.errors import GaplessError
from harness.record.attachments import ArmAudit
from harness.record.audit_report import AuditReport, to_json
from harness.tables import figures
from harness.tables.grid import Table, to_csv

if TYPE_CHECKING:
    from dashboard.trace_worker import TraceAudit


def _audit(name: str, content: bytes) -> TraceAudit | None:
    bar = st.progress(0.0, "Reading the trace")
    try:
        return audit_upload(name, content, on_progress=bar.progress)
    except GaplessError as error:
        st.error(markdown_text(str(error)))
        return None
    finally:
        bar.empty()


def _summary(report: AuditReport) -> None:
    timeline = report.timeline
    columns = st.columns(4)
    per = "per step" if report.steps else "in the trace"
    columns[0].metric(f"Syncs {per}", figures.count(report.syncs_per_step), border=True)
    columns[1].metric("Span", figures.milliseconds(timeline.span_ms), border=True)
    columns[2].metric("Device idle", figures.milliseconds(timeline.idle_ms), border=True)
    overlap = figures.percent(timeline.overlap, signed=False)
    columns[3].metric("Copies hidden under compute", overlap, border=True)
    marked = "1 step" if report.steps == 1 else f"{report.steps or 'no'} steps"
    st.caption(markdown_text(f"{report.device} · {report.times} · {marked} marked"))
    for note in (*report.notes, *report.unjudged):
        st.text(note)
    if report.api_calls:
        table = Table(
            columns=("Call that waits", "Count"),
            rows=tuple((name, f"{count:,}") for name, count in report.api_calls.items()),
        )
        shown.show_table(table, to_csv(table.columns, list(report.api_calls.items())), "calls")


def page() -> None:
    """Upload a Kineto trace; it is audited in a process of its own and deleted."""
    shown.page_head("open", "Open a trace", "What does a profile of your own say?")
    uploaded = st.file_uploader(
        f"A Kineto trace, .json or .json.gz, up to {MAX_UPLOAD_BYTES >> 20} MiB",
        type=["json", "gz"],
        key="trace",
    )
    if uploaded is None:
        st.caption(
            "From torch.profiler on CUDA or ROCm, torch 1.9 or newer. The file is read in a "
            "process of its own and deleted; on your own machine the same audit is:"
        )
        st.code("gapless audit trace.json.gz", language=None)
        return
    held = st.session_state.get("opened")
    if held is None or held[0] != uploaded.file_id:
        held = (uploaded.file_id, _audit(uploaded.name, uploaded.getvalue()))
        st.session_state["opened"] = held
    found: TraceAudit | None = held[1]
    if found is None:
        return
    _summary(found.report)
    show_audits([ArmAudit(arm="trace", report=found.report)], "opened")
    if found.timeline is not None:
        st.subheader("Timeline", anchor=False)
        show_timelines([("trace", found.timeline)], "opened")
    st.download_button(
        "Download the audit", to_json(found.report), "audit.json", "application/json",
        on_click="ignore",
    )  # fmt: skip


page()
