"""The one chart that most views use: horizontal bars with intervals, in bands.

The vertical axis counts pixels, so that text lines and bars never run into each other however many
there are, and one layout fits a phone and a wide screen. Each bar has its words above it: what it
is on the left, its figure on the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboard.charts.style import (
    ENCODING,
    GRID,
    NOISE_FILL,
    ZERO_LINE,
    bar_marker,
    layout,
)
from dashboard.plain import chart_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.charts.style import Figure
    from harness.record.records import Source

BAND_TITLE_PX = 24
TEXT_LINE_PX = 17
BAR_PX = 12
STRIP_PX = 11
BAR_GAP_PX = 7
BAND_GAP_PX = 12
AXIS_PX = 44
MAX_BESIDE = 40
"""Most letters of a label and its figure that fit on one line of the narrowest chart, 250 px."""


@dataclass(frozen=True)
class Bar:
    """One figure."""

    label: str
    text: str
    """The figure in words, as every other view writes it."""
    value: float | None
    source: Source
    low: float | None = None
    high: float | None = None
    strip: tuple[float, ...] = ()
    """What the figure was drawn from, as dots under the bar."""
    is_firm: bool = True
    """Without enough blocks it is a hollow dot without a bar, and the axis takes no notice."""


@dataclass(frozen=True)
class Band:
    """Bars under one title."""

    title: str
    bars: tuple[Bar, ...]
    noise: tuple[float, float] | None = None
    """What the baseline against itself shows, shaded behind the bars."""


def interval_bars(
    bands: Sequence[Band], *, axis: str, tick_format: str = "+~%", limit: float | None = None
) -> Figure:
    """Bars from zero, whiskers for intervals, a shaded noise band; `axis` names the unit.

    `limit` ends the axis, so that one long whisker does not shrink all others to a point. Figures
    that are not firm do not widen it either. What goes on beyond an end bears an arrow there.
    """
    bars = [bar for band in bands for bar in band.bars]
    beside = all(len(bar.label) + len(bar.text) <= MAX_BESIDE for bar in bars)
    words: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    drawn: dict[Source, list[tuple[float, Bar]]] = {}
    y = 0.0
    for band in bands:
        words.append(_words(y + BAND_TITLE_PX / 2, f"<b>{chart_text(band.title)}</b>", size=13))
        y += BAND_TITLE_PX
        for bar in band.bars:
            words.append(_words(y + TEXT_LINE_PX / 2, chart_text(bar.label)))
            if not beside:
                y += TEXT_LINE_PX
            words.append(_words(y + TEXT_LINE_PX / 2, chart_text(bar.text), right=beside))
            y += TEXT_LINE_PX
            drawn.setdefault(bar.source, []).append((y + BAR_PX / 2, bar))
            bottom = y + BAR_PX + (STRIP_PX if bar.strip else 0)
            shapes += _ground(y - 1, bottom + 2, band.noise)
            y = bottom + BAR_GAP_PX
        y += BAND_GAP_PX
    data = [trace for source, placed in drawn.items() for trace in _traces(source, placed)]
    cut = _range(bars, limit)
    if cut:
        words += [
            _arrow(y, ENCODING[bar.source].line, right=right)
            for placed in drawn.values()
            for y, bar in placed
            for right in (False, True)
            if (_ends(bar)[1] > cut[1] if right else _ends(bar)[0] < cut[0])
        ]
    return {
        "data": data,
        "layout": layout(
            round(y) + AXIS_PX + 8,
            barmode="overlay",
            annotations=words,
            shapes=shapes,
            xaxis={
                "title": {"text": axis, "font": {"size": 12}},
                "tickformat": tick_format,
                "gridcolor": GRID,
                "zeroline": False,
                "nticks": 6,
                "rangemode": "tozero",
                "fixedrange": True,
                **({"range": list(cut)} if cut else {}),
            },
            yaxis={"visible": False, "range": [y, 0], "fixedrange": True},
        ),
    }


def _ends(bar: Bar) -> tuple[float, float]:
    """The least and the most that is drawn of a bar."""
    values = [value for value in (bar.value, bar.low, bar.high, *bar.strip) if value is not None]
    return min(values, default=0.0), max(values, default=0.0)


def _range(bars: Sequence[Bar], limit: float | None) -> tuple[float, float] | None:
    """Where the axis begins and ends; `None` where everything that is drawn may decide it."""
    firm = [bar for bar in bars if bar.is_firm]
    if not firm:
        return None
    least = min(0.0, *(_ends(bar)[0] for bar in firm))
    most = max(0.0, *(_ends(bar)[1] for bar in firm))
    loose = [_ends(bar) for bar in bars if not bar.is_firm]
    is_cut = limit is not None and most > limit
    if not is_cut and all(least <= low and high <= most for low, high in loose):
        return None
    end = limit if limit is not None and is_cut else most
    margin = 0.04 * (end - least) or 0.01
    return (least - margin, end if is_cut else end + margin)


def _arrow(y: float, colour: str, *, right: bool) -> dict[str, Any]:
    sign = "<b>▶</b>" if right else "<b>◀</b>"
    return {**_words(y, sign, right=right), "font": {"size": 13, "color": colour}}


def _ground(top: float, bottom: float, noise: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Noise band and zero line behind one bar; between bars they would cross the words."""
    zero = {"color": ZERO_LINE, "width": 1.5}
    shapes: list[dict[str, Any]] = [
        {"type": "line", "x0": 0, "x1": 0, "y0": top, "y1": bottom, "line": zero}
    ]
    if noise is not None:
        shapes.append(
            {
                "type": "rect",
                "x0": noise[0],
                "x1": noise[1],
                "y0": top,
                "y1": bottom,
                "fillcolor": NOISE_FILL,
                "line": {"width": 0},
                "layer": "below",
            }
        )
    return shapes


def _words(y: float, text: str, *, size: int = 12, right: bool = False) -> dict[str, Any]:
    side = "right" if right else "left"
    return {
        "x": 1 if right else 0,
        "xref": "paper",
        "xanchor": side,
        "y": y,
        "yref": "y",
        "yanchor": "middle",
        "text": text,
        "showarrow": False,
        "align": side,
        "font": {"size": size},
    }


def _traces(source: Source, placed: Sequence[tuple[float, Bar]]) -> list[dict[str, Any]]:
    known = [(y, bar) for y, bar in placed if bar.value is not None]
    firm = [(y, bar) for y, bar in known if bar.is_firm]
    loose = [(y, bar) for y, bar in known if not bar.is_firm]
    colour = ENCODING[source].line
    shapes: list[tuple[Sequence[tuple[float, Bar]], dict[str, Any]]] = [
        (firm, {"type": "bar", "orientation": "h", "width": BAR_PX, "marker": bar_marker(source)}),
        (
            loose,
            {
                "type": "scatter",
                "mode": "markers",
                "marker": {"symbol": "circle-open", "size": 9, "color": colour},
            },
        ),
    ]
    traces: list[dict[str, Any]] = [
        {
            "name": source,
            "x": [bar.value for _, bar in drawn],
            "y": [y for y, _ in drawn],
            "error_x": _whiskers([bar for _, bar in drawn], colour),
            "customdata": [[chart_text(bar.label), chart_text(bar.text)] for _, bar in drawn],
            "hovertemplate": f"%{{customdata[0]}}<br>%{{customdata[1]}}<extra>{source}</extra>",
            **shape,
        }
        for drawn, shape in shapes
        if drawn
    ]
    dots = [(value, y) for y, bar in known for value in bar.strip]
    if dots:
        traces.append(
            {
                "type": "scatter",
                "name": f"{source}, each block",
                "mode": "markers",
                "x": [value for value, _ in dots],
                "y": [y + BAR_PX / 2 + STRIP_PX / 2 for _, y in dots],
                "marker": {"size": 5, "color": colour, "opacity": 0.5},
                "hovertemplate": "one block: %{x:+.1%}<extra></extra>",
            }
        )
    return traces


def _whiskers(bars: Sequence[Bar], colour: str) -> dict[str, Any]:
    ups, downs = [], []
    for bar in bars:
        value = bar.value or 0.0
        ups.append(0.0 if bar.high is None else max(bar.high - value, 0.0))
        downs.append(0.0 if bar.low is None else max(value - bar.low, 0.0))
    return {
        "type": "data",
        "symmetric": False,
        "array": ups,
        "arrayminus": downs,
        "color": colour,
        "thickness": 2.5,
        "width": 5,
    }
