"""How figures look, decided once: a source is told by colour and by pattern, on light and dark.

Colours are from the palette of Okabe and Ito, chosen so that each has at least 3:1 contrast on
white and on the dark page; text takes the page's own colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import Source, Verdict


Figure: TypeAlias = "dict[str, Any]"
"""A Plotly figure as plain data, `{"data": [...], "layout": {...}}`. Plotly's own classes check
each part as it is added, which takes a hundred times as long; the tests check every chart whole."""


@dataclass(frozen=True)
class Encoding:
    """How figures of one source are drawn."""

    line: str
    fill: str
    pattern: str
    """Plotly pattern shape; empty for none."""
    meaning: str


NO_FILL = "rgba(0,0,0,0)"
ENCODING: dict[Source, Encoding] = {
    "published": Encoding("#7d8590", NO_FILL, "", "published: outline"),
    "modelled": Encoding("#d55e00", NO_FILL, "/", "modelled: hatched"),
    "measured": Encoding("#0f7fc0", "rgba(15,127,192,0.55)", "", "measured: filled"),
}
ARM_COLOURS = ("#7d8590", "#0f7fc0", "#d55e00", "#009e73", "#b35fa0", "#a07d00", "#6a6fd0")
ARM_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")
FONT = '"Source Sans", system-ui, "Segoe UI", sans-serif'
INK = {"light": "#1c2530", "dark": "#e8edf2"}
NOISE_FILL = "rgba(127,127,127,0.28)"
GRID = "rgba(127,127,127,0.25)"
ZERO_LINE = "rgba(127,127,127,0.8)"
SEQUENTIAL = "Cividis"

VERDICT_MARK: dict[Verdict, str] = {
    "faster": "▲ faster",
    "slower": "▼ slower",
    "same": "= same",
    "undecided": "? undecided",
}
"""A mark and a word, so that no verdict rests on a colour."""

CONFIG: dict[str, Any] = {"displaylogo": False, "responsive": True, "displayModeBar": False}
"""Options of Plotly that every chart is shown with."""


def bar_marker(source: Source) -> dict[str, Any]:
    """Fill, hatch or outline of a bar."""
    encoding = ENCODING[source]
    return {
        "color": encoding.fill,
        "line": {"color": encoding.line, "width": 1.6},
        "pattern": {"shape": encoding.pattern, "fgcolor": encoding.line, "size": 6},
    }


def layout(height: int, **parts: Any) -> dict[str, Any]:
    """Transparent ground and small margins, and what the chart adds."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 40, "autoexpand": True},
        "paper_bgcolor": NO_FILL,
        "plot_bgcolor": NO_FILL,
        "font": {"size": 12, "family": FONT},
        "hoverlabel": {"align": "left"},
        "showlegend": False,
        **parts,
    }


def encodings_used(sources: Sequence[Source]) -> str:
    """The legend in words, `published: outline · measured: filled`."""
    order: tuple[Source, ...] = ("published", "modelled", "measured")
    return " · ".join(ENCODING[source].meaning for source in order if source in sources)


def inked(figure: Figure, theme: str) -> Figure:
    """The figure with its words in the colour of text on a `light` or `dark` page."""
    words = {**figure["layout"]["font"], "color": INK.get(theme, INK["light"])}
    return {"data": figure["data"], "layout": {**figure["layout"], "font": words}}
