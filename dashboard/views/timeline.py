"""Timeline: what ran on each stream, and when did the device idle?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.lane_view import show_timelines, window_key
from dashboard.plain import markdown_text, without_folder
from dashboard.trace_child import audit_upload
from harness.errors import GaplessError
from harness.record.store import Store

if TYPE_CHECKING:
    from dashboard.filters import Filters
    from dashboard.rows.lanes import Timeline


_NAME = "run"
_OF_SOURCE = {
    "measured": "Measured: steps under the profiler, which is never on in timed blocks. What it "
    "adds to the host makes gaps look longer than they are.",
    "modelled": "Modelled by the virtual clock: no GPU ran this.",
    "published": "Published by somebody else.",
}


@st.cache_data(max_entries=8, show_spinner="Reading the trace")
def _timeline(root: str, run_id: str, arm: str) -> Timeline | None:
    store = Store(root)
    return audit_upload("trace.gz", store.trace(store.read(run_id), arm)).timeline


def _window() -> tuple[float, ...]:
    """The part that is zoomed into: the session's, or at first that of the address."""
    kept = window_key(_NAME)
    if kept not in st.session_state:
        try:
            left, right = map(float, st.query_params.get_all("window"))
        except ValueError:
            return ()
        if not 0 <= left < right < math.inf:
            return ()
        st.session_state[kept] = (left, right)
    window: tuple[float, ...] = st.session_state[kept]
    return window


def page() -> None:
    """The traces of one run's arms, aligned under each other."""
    found = shown.snapshot()
    wanted = st.query_params.get_all("of")
    window = _window()
    shown.page_head(
        "timeline",
        "Timeline",
        "What ran on each stream, and when did the device idle?",
        [*(("of", run) for run in wanted), *(("window", f"{at:.3f}") for at in window)],
    )
    shown.warn_of_gone(found, wanted)
    filters: Filters = shown.current_filters()
    positions = [n for n in found.positions(filters) if found.facets[n].has_traces][:200]
    records = [found.records[n] for n in positions]
    if not records:
        shown.empty(
            "No run here kept a timeline: runs on a GPU and modelled ones do. A trace of your own "
            "opens under “Open a trace”; `gapless list` has the names for --arm.",
            "gapless model qwen3-8b-packed-sft --gpu B200 --arm OPTIMIZATION=VARIANT",
        )
        return
    titles = shown.run_titles(records)
    of = st.selectbox(
        "Run", list(titles), format_func=lambda run: titles[run], key="of", bind="query-params"
    )
    record = found.find(of) if of else None
    if record is None:
        return
    st.caption(f"{_OF_SOURCE[record.source]} A lane is as high as it is busy.")
    timelines = []
    for arm in dict.fromkeys(record.traced_arms):
        try:
            timeline = _timeline(found.root, record.id, arm)
        except GaplessError as error:
            st.warning(markdown_text(f"{arm}: {without_folder(error, found.root)}"))
            continue
        if timeline is None:
            st.warning(markdown_text(f"{arm}: its trace shows no work on a device."))
            continue
        for note in timeline.notes:
            st.warning(markdown_text(f"{arm}: {note}."))
        timelines.append((arm, timeline))
    if timelines:
        show_timelines(timelines, _NAME)


page()
