"""Modelled speedups by GPU and by model size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dashboard.charts.claim_chart import AXIS
from dashboard.charts.interval_bars import Band, Bar, interval_bars
from dashboard.charts.style import SEQUENTIAL, layout
from dashboard.plain import chart_text
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.charts.style import Figure
    from dashboard.rows.modelled_rows import WhatIfRow


def whatif_chart(rows: Sequence[WhatIfRow]) -> Figure:
    """What each arm would give on one GPU for one size, a band a phase."""
    bands = [
        Band(
            phase,
            tuple(
                Bar(row.arm, row.text, row.speedup, "modelled", row.low, row.high)
                for row in rows
                if row.phase == phase
            ),
        )
        for phase in dict.fromkeys(row.phase for row in rows)
    ]
    return interval_bars(bands, axis=AXIS)


def whatif_map(rows: Sequence[WhatIfRow], gpus: Sequence[str]) -> Figure:
    """GPU by model size: the modelled speedup of one arm in one phase, as a shaded table.

    Where a cell has several set-ups it holds their range, shaded by its geometric middle.
    """
    sizes = list(dict.fromkeys(row.size for row in rows))
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row.size, row.gpu), []).append(row.speedup)
    cells = [[found.get((size, gpu), []) for gpu in gpus] for size in sizes]
    shades = [_middle(cell) for line in cells for cell in line if cell]
    trace = {
        "type": "heatmap",
        "x": [chart_text(gpu, 16) for gpu in gpus],
        "y": [chart_text(size, 40).replace(", ", "<br>", 1) for size in sizes],
        "z": [[_middle(cell) if cell else None for cell in line] for line in cells],
        "text": [[_range_text(cell) for cell in line] for line in cells],
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}<br>%{x}<br>%{text}<extra>modelled</extra>",
        "colorscale": SEQUENTIAL,
        "zmin": min([0.0, *shades]),
        "zmax": max([0.0, *shades]),
        "colorbar": {"tickformat": "+~%", "thickness": 10},
        "xgap": 2,
        "ygap": 2,
    }
    # Names and ranges take two lines each, so that they fit a phone.
    height = 120 + 44 * len(sizes)
    return {"data": [trace], "layout": layout(height, yaxis={"automargin": True})}


def _middle(speedups: Sequence[float]) -> float:
    return math.sqrt((1 + min(speedups)) * (1 + max(speedups))) - 1


def _range_text(speedups: Sequence[float]) -> str:
    if not speedups:
        return ""
    low, high = figures.percent(min(speedups)), figures.percent(max(speedups))
    return low if low == high else f"{low}<br>to {high}"
