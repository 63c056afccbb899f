"""Streams as lanes over time: each pixel as high as the share of it in which the stream works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboard.charts.style import GRID, NOISE_FILL, layout
from dashboard.plain import chart_text
from dashboard.rows.lane_rows import filled, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dashboard.charts.style import Figure
    from dashboard.rows.lane_rows import Fills, Spans, Timeline, Work

PIXELS = 1_200
LANE_PX = 30
TITLE_PX = 22
LEAST_HEIGHT = 0.15
"""Share of its lane that something short has, so that it is seen."""
COLOURS: dict[Work | str, str] = {
    "compute": "#0f7fc0",
    "copy": "#d55e00",
    "communication": "#b35fa0",
    "other": "#009e73",
    "waits": "#a07d00",
    "exposed": "rgba(213,94,0,0.30)",
    "idle": NOISE_FILL,
}
SHADES = ("idle", "exposed")
HEIGHT_OF: dict[Work, float] = {"compute": 0.8, "communication": 0.6, "copy": 0.4, "other": 0.25}
"""Copies are drawn over kernels and smaller, so that both are seen where they overlap."""


NAMES = {
    "waits": "host waits for the device",
    "idle": "device idle",
    "exposed": "idle because of a wait",
}


def timeline_chart(
    timelines: Sequence[tuple[str, Timeline]], start_ms: float, end_ms: float
) -> Figure:
    """Titled timelines under each other on one time axis, which starts with each one's begin."""
    traces: list[dict[str, Any]] = []
    titles: list[dict[str, Any]] = []
    ticks: list[tuple[float, str]] = []
    y = 0.0
    for title, timeline in timelines:
        titles.append(_title(y + TITLE_PX / 2, title))
        y += TITLE_PX
        names = list(dict.fromkeys(lane.name for lane in timeline.lanes))
        bottom = y + LANE_PX * (len(names) + 1)
        ticks.append((y + LANE_PX / 2, "host waits"))
        ticks += [
            (y + LANE_PX * (number + 0.5), chart_text(name, 28))
            for number, name in enumerate(names, start=1)
        ]
        for kind, spans, top, end in _rectangles(timeline, names, y, bottom):
            if kind in SHADES:
                fills = tuple((*span, 1.0) for span in visible(spans, start_ms, end_ms, PIXELS))
            else:
                fills = filled(spans, start_ms, end_ms, PIXELS)
            if fills:
                traces.append(_path(kind, fills, top, end))
        y = bottom + 10
    _one_legend_entry_a_kind(traces)
    return {
        "data": traces,
        "layout": layout(
            round(y) + 96,
            annotations=titles,
            dragmode="select",
            selectdirection="h",
            showlegend=True,
            legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
            xaxis={
                "title": {"text": "ms since the begin"},
                "range": [start_ms, end_ms],
                "gridcolor": GRID,
                "nticks": 8,
                "tickformat": ",~r",
            },
            yaxis={
                "range": [y, 0],
                "tickvals": [at for at, _ in ticks],
                "ticktext": [text for _, text in ticks],
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "automargin": True,
            },
        ),
    }


def _rectangles(
    timeline: Timeline, names: Sequence[str], top: float, bottom: float
) -> Iterator[tuple[str, Spans, float, float]]:
    """Kind, spans, upper and lower edge; what is yielded later is drawn over what came before."""
    yield "idle", timeline.idle, top, bottom
    yield "exposed", timeline.exposed, top, bottom
    yield "waits", timeline.waits, top + LANE_PX * 0.2, top + LANE_PX * 0.8
    for work, share in HEIGHT_OF.items():
        for lane in timeline.lanes:
            if lane.work == work:
                middle = top + LANE_PX * (names.index(lane.name) + 1.5)
                half = LANE_PX * share / 2
                yield work, lane.spans, middle - half, middle + half


def _title(y: float, text: str) -> dict[str, Any]:
    return {
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": y,
        "yref": "y",
        "text": f"<b>{chart_text(text)}</b>",
        "showarrow": False,
        "font": {"size": 13},
    }


def _path(kind: str, fills: Fills, top: float, bottom: float) -> dict[str, Any]:
    """All rectangles of one kind in one lane as a single path: thousands draw as one shape.

    Each is as high as it is full, and high enough to be seen.
    """
    x: list[float | None] = []
    y: list[float | None] = []
    for start, end, share in fills:
        upper = bottom - (bottom - top) * max(share, LEAST_HEIGHT)
        x += [start, start, end, end, None]
        y += [upper, bottom, bottom, upper, None]
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"width": 0, "simplify": False},
        "fill": "toself",
        "fillcolor": COLOURS[kind],
        "name": NAMES.get(kind, kind),
        "legendgroup": kind,
        "hoverinfo": "name",
        "hoveron": "fills",
    }


def _one_legend_entry_a_kind(traces: Sequence[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = trace["legendgroup"] not in seen
        seen.add(trace["legendgroup"])
