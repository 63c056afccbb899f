"""All samples of one run in the order they were taken, so that drift shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboard.charts.style import ARM_COLOURS, ARM_SYMBOLS, GRID, layout
from dashboard.plain import chart_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.charts.style import Figure
    from harness.record.records import Sample


def samples_chart(rows: Sequence[Sample]) -> Figure:
    """Duration over order, an arm a colour and a shape, warm-ups hollow."""
    arms = list(dict.fromkeys(row.arm for row in rows))
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    return {
        "data": [
            _trace(arm, number, [row for row in rows if row.arm == arm])
            for number, arm in enumerate(arms)
        ],
        "layout": layout(
            380 + 20 * len(arms),
            showlegend=True,
            legend=legend,
            xaxis={
                "title": {"text": "Position in the run (hollow: warm-up)"},
                "gridcolor": GRID,
                "nticks": 8,
            },
            yaxis={
                "title": {"text": "ms"},
                "gridcolor": GRID,
                "rangemode": "tozero",
                "automargin": True,
            },
        ),
    }


def _trace(arm: str, number: int, rows: Sequence[Sample]) -> dict[str, Any]:
    symbol = ARM_SYMBOLS[number % len(ARM_SYMBOLS)]
    return {
        "type": "scatter",
        "x": [row.order for row in rows],
        "y": [row.duration_ms for row in rows],
        "mode": "markers",
        "name": chart_text(arm, 48),
        "marker": {
            "color": ARM_COLOURS[number % len(ARM_COLOURS)],
            "symbol": [f"{symbol}-open" if row.warmup else symbol for row in rows],
            "size": 7,
        },
        "customdata": [[row.block, "warm-up" if row.warmup else ""] for row in rows],
        "hovertemplate": "%{y:.4g} ms, block %{customdata[0]} %{customdata[1]}",
    }
