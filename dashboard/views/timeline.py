"""Timeline: what ran on each stream, and when did the device idle?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.lane_view import show_timelines
from dashboard.plain import markdown_text
from dashboard.trace_child import audit_upload
from harness.errors import GaplessError
from harness.store import Store

if TYPE_CHECKING:
    from dashboard.filters import Filters
    from dashboard.rows.lanes import Timeline


@st.cache_data(max_entries=8, show_spinner="Reading the trace")
def _timeline(root: str, run_id: str, arm: str) -> Timeline | None:
    store = Store(root)
    return audit_upload("trace.gz", store.trace(store.read(run_id), arm)).timeline


def page() -> None:
    """The traces of one run's arms, aligned under each other."""
    found = shown.snapshot()
    wanted = st.query_params.get_all("of")
    shown.page_head(
        "timeline",
        "Timeline",
        "What ran on each stream, and when did the device idle?",
        [("of", run) for run in wanted],
    )
    shown.warn_of_gone(found, wanted)
    filters: Filters = shown.current_filters()
    positions = [n for n in found.positions(filters) if found.facets[n].has_traces][:200]
    records = [found.records[n] for n in positions]
    if not records:
        shown.empty(
            "No run here kept a trace of its arms. A trace of your own, or a modelled one, opens "
            "under “Open a trace”:",
            "gapless audit my_train.py:step --timeline timeline.json.gz",
        )
        return
    titles = shown.run_titles(records)
    of = st.selectbox(
        "Run", list(titles), format_func=lambda run: titles[run], key="of", bind="query-params"
    )
    record = found.find(of) if of else None
    if record is None:
        return
    timelines = []
    for arm in record.traced_arms:
        try:
            timeline = _timeline(found.root, record.id, arm)
        except GaplessError as error:
            st.warning(markdown_text(f"{arm}: {error}"))
            continue
        if timeline is not None:
            timelines.append((arm, timeline))
    if timelines:
        show_timelines(timelines, "run")


page()
