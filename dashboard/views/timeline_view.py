"""The controls of the timeline: a run and the window that is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.contents import timeline_page
from dashboard.facets import facets_of
from dashboard.views.block_renderer import render
from dashboard.views.controls import choose_run
from dashboard.views.lane_view import show_timelines
from dashboard.views.page_frame import current_filters, page_frame

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot


def page(found: Snapshot) -> None:
    """The traces of one run's arms, aligned under each other."""
    records = timeline_page.traced_runs(found, current_filters())
    if not records:
        render(timeline_page.no_timeline())
        return
    record = choose_run(found, list(map(facets_of, records)), "Run", name="of", page="timeline")
    if record is None:
        return
    with st.spinner("Reading the trace"):
        said, timelines = timeline_page.read_timelines(found, record)
    render(said)
    if timelines:
        show_timelines(timelines, "run")


with page_frame(timeline_page.HEAD, "of", "window") as shown:
    page(shown)
