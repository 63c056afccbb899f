"""Draws blocks with Streamlit; what they say is decided in `dashboard/contents/`."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Literal

import pandas as pd
import streamlit as st

from dashboard.charts.style import CONFIG, inked
from dashboard.contents import blocks as made
from dashboard.plain import markdown_text
from dashboard.views.address import run_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dashboard.contents.blocks import Block, Tone

Colour = Literal["green", "red", "gray", "orange", "blue"]
COLOURS: dict[Tone, Colour] = {
    "plain": "gray",
    "quiet": "gray",
    "info": "blue",
    "warning": "orange",
    "error": "red",
    "good": "green",
}
TONES: dict[Tone, Callable[[str], object]] = {
    "plain": st.text,
    "quiet": lambda text: st.caption(markdown_text(text)),
    "info": lambda text: st.info(markdown_text(text), icon=":material/inbox:"),
    "warning": lambda text: st.warning(markdown_text(text)),
    "error": lambda text: st.error(markdown_text(text)),
    "good": lambda text: st.success(markdown_text(text), icon=":material/check:"),
}


def render(blocks: Iterable[Block]) -> None:
    """Draw these blocks under each other, where Streamlit is now."""
    for block in blocks:
        draw(block)


@singledispatch
def draw(block: Block) -> None:
    """Draw one block."""
    raise TypeError(f"no way to draw {type(block).__name__}")


@draw.register
def _text(block: made.Text) -> None:
    TONES[block.tone](block.text)


@draw.register
def _heading(block: made.Heading) -> None:
    st.subheader(markdown_text(block.text), anchor=False)


@draw.register
def _badges(block: made.Badges) -> None:
    with st.container(horizontal=True, gap="small"):
        for text, tone in block.items:
            st.badge(markdown_text(text), color=COLOURS[tone])


@draw.register
def _metrics(block: made.Metrics) -> None:
    for column, (label, value) in zip(st.columns(len(block.items)), block.items, strict=True):
        column.metric(label, value, border=True)


@draw.register
def _chart(block: made.Chart) -> None:
    draw_chart(block, block.name)


def draw_chart(block: made.Chart, key: str, on_drag: Callable[[], None] | None = None) -> None:
    """A chart with its words for those who cannot see it.

    `on_drag` is called when somebody has dragged over it: `st.session_state[key]` then says where.
    """
    figure = inked(block.figure, st.context.theme.type or "light")
    st.plotly_chart(
        figure, theme=None, config=CONFIG, alt=block.alt, key=key, selection_mode="box",
        height=block.figure["layout"]["height"], on_select=on_drag or "ignore",
    )  # fmt: skip


@draw.register
def _grid(block: made.Grid) -> None:
    frame = pd.DataFrame(list(block.rows), columns=list(block.columns), dtype="str")
    config = {}
    if "Run" in frame.columns:
        frame["Run"] = [run_link(run_id) if len(run_id) > 1 else "" for run_id in frame["Run"]]
        config["Run"] = st.column_config.LinkColumn(display_text=r"id=(.*)$")
    key = f"table-{block.name}"
    st.dataframe(frame, hide_index=True, column_config=config, key=key, alt=block.name)
    if block.csv:
        _download(made.Download("CSV", f"{block.name}.csv", block.csv))


@draw.register
def _code(block: made.Code) -> None:
    if block.is_folded:
        with st.expander(block.label):
            st.code(block.text, language=None, height=400)
        return
    if block.label:
        st.caption(block.label)
    st.code(block.text, language=None, wrap_lines=True)


@draw.register
def _links(block: made.Links) -> None:
    lines = [f"- [{markdown_text(name)}]({run_link(run_id)})" for name, run_id in block.runs]
    st.markdown("\n".join(lines))


@draw.register
def _download(block: made.Download) -> None:
    st.download_button(
        block.label, block.content, block.file_name, block.media_type,
        key=f"file-{block.file_name}", on_click="ignore", icon=":material/download:",
    )  # fmt: skip


@draw.register
def _details(block: made.Details) -> None:
    with st.expander(markdown_text(block.label)):
        render(block.blocks)


@draw.register
def _columns(block: made.Columns) -> None:
    for column, group in zip(st.columns(len(block.groups)), block.groups, strict=True):
        with column.container(border=True):
            render(group)
