"""Timelines with a window to zoom into, shown on two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.charts.lanes import timeline_chart
from dashboard.plain import markdown_text
from dashboard.rows import lanes
from dashboard.rows.listed import rows_csv

if TYPE_CHECKING:
    from collections.abc import Sequence


def window_key(name: str) -> str:
    """Where the session keeps the window of the timelines `name`: start and end in ms."""
    return f"window-{name}"


def show_timelines(timelines: Sequence[tuple[str, lanes.Timeline]], name: str) -> None:
    """Timelines under each other; the window is drawn anew, at most one shape a pixel."""
    longest = max(timeline.span_ms for _, timeline in timelines)
    step = longest / 1000 or 0.001
    window, span = window_key(name), f"span-{name}"
    if st.session_state.get(span) not in (None, longest):
        # Another run is shown than before: its beginning is not what was looked at.
        st.session_state.pop(window, None)
    st.session_state[span] = longest
    left, right = st.session_state.get(window, (0.0, longest))
    # What is kept may be of a longer timeline, or from somebody's link.
    start = min(max(left, 0.0), longest - step)
    end = min(max(right, start + step), longest)
    st.session_state[window] = (start, end)
    chart = f"lanes-{name}-{start}-{end}"

    def zoom() -> None:
        boxes = st.session_state[chart].selection.box
        if boxes:
            left, right = sorted(boxes[-1]["x"])
            st.session_state[window] = (max(left, 0.0), min(max(right, left + step), longest))

    slider, button = st.columns([5, 1], vertical_alignment="bottom")
    slider.slider(
        "Window, ms: drag here, or over the chart to zoom in",
        0.0, longest, step=step, key=window, format="%.3f",
    )  # fmt: skip
    start, end = st.session_state[window]
    button.button(
        "Whole span", key=f"whole-{name}", disabled=(start, end) == (0.0, longest),
        on_click=lambda: st.session_state.update({window: (0.0, longest)}), width="stretch",
    )  # fmt: skip
    summary = lanes.summary_rows(timelines)
    words = lanes.summary_words(summary)
    shown.show_chart(timeline_chart(timelines, start, end), words, chart, on_drag=zoom)
    shown.show_table(
        lanes.SUMMARY.table(summary), rows_csv(lanes.SummaryRow, summary), f"timelines-{name}"
    )
    for title, timeline in timelines:
        rows = lanes.lane_rows(timeline)
        with st.expander(f"Lanes of {markdown_text(title)}"):
            shown.show_table(
                lanes.COLUMNS.table(rows), rows_csv(lanes.LaneRow, rows), f"lanes-{name}-{title}"
            )
