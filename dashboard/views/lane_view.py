"""The window of timelines: a slider, a drag over the chart, and the whole again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.contents.timeline_page import lanes_chart, lanes_tables, longest_ms
from dashboard.plain import markdown_text
from dashboard.views import address
from dashboard.views.block_renderer import draw_chart, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.timeline_page import Named, Window


def show_timelines(timelines: Sequence[Named], name: str) -> None:
    """Timelines under each other in the window that the address or a control says."""
    longest = longest_ms(timelines)
    step = longest / 1000 or 0.001
    window, span = f"window-{name}", f"span-{name}"
    if span not in st.session_state:
        st.session_state[window] = _named_window() or (0.0, longest)
    elif st.session_state[span] != longest:
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
    is_whole = (start, end) == (0.0, longest)
    address.write("window", [] if is_whole else [f"{start:.9g}", f"{end:.9g}"])
    button.button(
        "Whole span", key=f"whole-{name}", disabled=is_whole,
        on_click=lambda: st.session_state.update({window: (0.0, longest)}), width="stretch",
    )  # fmt: skip
    draw_chart(lanes_chart(timelines, (start, end)), chart, on_drag=zoom)
    render(lanes_tables(timelines))


def _named_window() -> Window | None:
    """The window that the address names; a warning where it names none that there can be."""
    given = address.named("window")
    if not given:
        return None
    try:
        left, right = map(float, given)
    except ValueError:
        left = right = math.nan
    if 0 <= left < right < math.inf:
        return left, right
    words = " to ".join(value[:40] for value in given)
    st.warning(markdown_text(f"The address names the window {words}, which is none; here is all."))
    return None
