"""Timelines with a window to zoom into, shown on two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.charts.lanes import timeline_chart
from dashboard.rows import lanes
from dashboard.rows.listed import rows_csv

if TYPE_CHECKING:
    from collections.abc import Sequence


def show_timelines(timelines: Sequence[tuple[str, lanes.Timeline]], name: str) -> None:
    """Timelines under each other; the window is drawn anew, at most one span a pixel."""
    longest = max(timeline.span_ms for _, timeline in timelines)
    step = longest / 1000 or 0.001
    start, end = st.slider(
        "Window, ms", 0.0, longest, (0.0, longest), step=step, key=f"window-{name}", format="%.3f"
    )
    if end - start < step:
        end = start + step
    words = "; ".join(
        f"{title}: {timeline.span_ms:.4g} ms, {len(timeline.waits)} waits"
        for title, timeline in timelines
    )
    shown.show_chart(timeline_chart(timelines, start, end), words, f"lanes-{name}")
    for title, timeline in timelines:
        rows = lanes.lane_rows(timeline)
        st.text(title)
        shown.show_table(
            lanes.COLUMNS.table(rows), rows_csv(lanes.LaneRow, rows), f"lanes-{name}-{title}"
        )
