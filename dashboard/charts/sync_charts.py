"""Syncs before and after, and where in the model they are."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING

from dashboard.charts.interval_bars import Band, Bar, interval_bars
from dashboard.charts.style import SEQUENTIAL, layout
from dashboard.plain import chart_text
from harness.record.records import PHASES
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.charts.style import Figure
    from dashboard.rows.sync_rows import SiteRow
    from harness.record.records import Source, SyncCount

TREE_HEIGHT_PX = 420


def counts_chart(rows: Sequence[SyncCount]) -> Figure:
    """Syncs per step, a band a phase, a bar an arm."""
    bands = []
    for phase in PHASES:
        chosen = [row for row in rows if row.phase == phase]
        bars = tuple(
            Bar(row.arm, f"{figures.count(row.count)} per step", row.count, row.source)
            for row in chosen
        )
        if bars:
            bands.append(Band(phase, bars))
    return interval_bars(bands, axis="Syncs per step", tick_format=",")


def module_tree(rows: Sequence[SiteRow], *, after: bool = False) -> Figure:
    """Modules as nested areas: size is syncs per step, shade is the device idle that one causes.

    The module that holds all of them is the outermost area. Before and after have one scale of
    shades, so that the two can be compared.
    """
    holder = _holder(rows)
    root = ".".join(holder) or "all"
    sizes: dict[tuple[str, ...], float] = {}
    idle_ms: dict[tuple[str, ...], float] = {}
    for row in rows:
        parts = (root, *_path(row)[len(holder) :])
        count = (row.after or 0.0) if after else row.before
        exposed = (row.exposed_after_ms if after else row.exposed_before_ms) or 0.0
        for depth in range(1, len(parts) + 1):
            key = parts[:depth]
            sizes[key] = sizes.get(key, 0.0) + count
            idle_ms[key] = idle_ms.get(key, 0.0) + exposed
    keys = [key for key, size in sizes.items() if size > 0]
    trace = {
        "type": "treemap",
        "ids": ["/".join(key) for key in keys],
        "parents": ["/".join(key[:-1]) for key in keys],
        "labels": [chart_text(key[-1], 60) for key in keys],
        "values": [sizes[key] for key in keys],
        "branchvalues": "total",
        "marker": {
            "colors": [idle_ms[key] / sizes[key] for key in keys],
            "colorscale": SEQUENTIAL,
            "cmin": 0,
            "cmax": _longest_idle_ms(rows) or 1.0,
            "showscale": any(idle_ms.values()),
            "colorbar": {"title": {"text": "idle, ms<br>per sync"}, "thickness": 10},
        },
        "customdata": [chart_text("/".join(key)) for key in keys],
        "texttemplate": "%{label}<br>%{value:,.4~g}",
        "hovertemplate": "%{customdata}<br>%{value:,.4~g} syncs per step<extra></extra>",
    }
    return {"data": [trace], "layout": layout(TREE_HEIGHT_PX)}


def sites_chart(rows: Sequence[SiteRow], source: Source, limit: int = 12) -> Figure:
    """Device idle at the costliest places; syncs per step where no idle time is known."""
    exposed = any(row.exposed_before_ms for row in rows)
    twice = Counter(row.place for row in rows[:limit])
    bands = []
    for row in rows[:limit]:
        old = row.exposed_before_ms if exposed else row.before
        new = row.exposed_after_ms if exposed else row.after
        write = figures.milliseconds if exposed else figures.count
        if row.after is None:
            bars = [Bar(row.kind, write(old), old, source)]
        else:
            bars = [Bar("before", write(old), old, source), Bar("after", write(new), new, source)]
        place = f"{row.place} · {row.phase}" if twice[row.place] > 1 else row.place
        bands.append(Band(place, tuple(bars)))
    axis = "Device idle because of it, ms per step" if exposed else "Syncs per step"
    return interval_bars(bands, axis=axis, tick_format=",")


def _longest_idle_ms(rows: Sequence[SiteRow]) -> float:
    """Of one sync at its worst place, before or after."""
    pairs = [(row.before, row.exposed_before_ms) for row in rows]
    pairs += [(row.after or 0.0, row.exposed_after_ms) for row in rows]
    return max((idle_ms / count for count, idle_ms in pairs if count and idle_ms), default=0.0)


def _holder(rows: Sequence[SiteRow]) -> tuple[str, ...]:
    """The names that the modules of all rows begin with."""
    modules = [_path(row)[:-1] for row in rows]
    same = takewhile(lambda names: len(set(names)) == 1, zip(*modules, strict=False))
    return tuple(names[0] for names in same)


def _path(row: SiteRow) -> tuple[str, ...]:
    module = () if row.module == figures.UNKNOWN else tuple(row.module.split("."))
    return (*module, row.place)
