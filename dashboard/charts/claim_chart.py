"""Published against modelled against measured, a chart for each fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.charts.interval_bars import Band, Bar, interval_bars
from dashboard.charts.style import VERDICT_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.charts.style import Figure
    from dashboard.rows.claim_entries import ClaimEntry

AXIS = "Speedup: baseline time / time - 1"


def claims_chart(entries: Sequence[ClaimEntry]) -> Figure:
    """One band a claim, one bar a source and GPU."""
    bands = []
    for claim in dict.fromkeys(entry.claim for entry in entries):
        chosen = [entry for entry in entries if entry.claim == claim]
        first = chosen[0]
        bands.append(Band(f"{first.model} · {first.phase}", tuple(_bar(e) for e in chosen)))
    return interval_bars(bands, axis=AXIS, limit=_limit(entries))


def _limit(entries: Sequence[ClaimEntry]) -> float | None:
    """Where the axis ends: what was published and measured fits, a modelled range may go on."""
    seen = [
        end
        for entry in entries
        if entry.source != "modelled" and entry.has_enough_blocks
        for end in (entry.speedup, entry.high)
        if end is not None
    ]
    return 1.5 * max(seen) if seen and max(seen) > 0 else None


def _bar(entry: ClaimEntry) -> Bar:
    mark = f"  {VERDICT_MARK[entry.verdict]}" if entry.verdict else ""
    part = f" · {entry.size}" if "layers" in entry.size else ""
    return Bar(
        label=f"{entry.source} · {entry.gpu}{part}",
        text=f"{entry.text}{mark}" if entry.speedup is not None else "no figure",
        value=entry.speedup,
        source=entry.source,
        low=entry.low,
        high=entry.high,
        is_firm=entry.has_enough_blocks,
    )
