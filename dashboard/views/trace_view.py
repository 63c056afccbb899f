"""The controls of an opened trace: the file, and the window that is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.contents import trace_page
from dashboard.contents.blocks import Heading
from dashboard.plain import markdown_text
from dashboard.trace_child import MAX_UPLOAD_BYTES, audit_upload
from dashboard.views.block_renderer import render
from dashboard.views.lane_view import show_timelines
from dashboard.views.page_frame import page_frame
from harness.errors import GaplessError

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


def page() -> None:
    """Upload a Kineto trace; it is audited in a process of its own and deleted."""
    uploaded = st.file_uploader(
        f"A Kineto trace, .json or .json.gz, up to {MAX_UPLOAD_BYTES >> 20} MiB",
        type=["json", "gz"],
        key="trace",
    )
    if uploaded is None:
        render(trace_page.how_to_open())
        return
    held = st.session_state.get("opened")
    if held is None or held[0] != uploaded.file_id:
        held = (uploaded.file_id, _audit(uploaded.name, uploaded.getvalue()))
        st.session_state["opened"] = held
    found: TraceAudit | None = held[1]
    if found is None:
        return
    render([*trace_page.summary(found.report), *trace_page.trace_sites(found.report)])
    if found.timeline is not None:
        render([Heading("Timeline")])
        show_timelines([("trace", found.timeline)], "opened")
    render([trace_page.audit_file(found.report)])


with page_frame(trace_page.HEAD, "window"):
    page()
