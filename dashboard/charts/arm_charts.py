"""Arms against their baseline: speedups with intervals, times, and what else an arm uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.charts.claim_chart import AXIS
from dashboard.charts.interval_bars import Band, Bar, interval_bars
from dashboard.charts.style import VERDICT_MARK
from harness.record.records import PHASES, Phase
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dashboard.charts.style import Figure
    from dashboard.rows.arm_rows import ArmRow, StepRow
    from harness.record.records import Verdict


def speedup_chart(
    rows: Sequence[ArmRow], strips: Mapping[tuple[str, Phase], tuple[float, ...]] | None = None
) -> Figure:
    """One run: a band a phase, a bar an arm, its blocks as dots, the noise floor shaded."""
    bands = []
    for phase in PHASES:
        chosen = [row for row in rows if row.phase == phase and not row.is_noise]
        if chosen:
            bars = tuple(
                _speedup_bar(row, (strips or {}).get((row.arm, phase), ())) for row in chosen
            )
            bands.append(Band(phase, bars, _noise(chosen[0])))
    return interval_bars(bands, axis=AXIS)


def overview_chart(rows: Sequence[ArmRow]) -> Figure:
    """Several runs in one phase: a band for each model size and GPU, a bar an arm."""
    bands = []
    for run in dict.fromkeys(row.run for row in rows):
        chosen = [row for row in rows if row.run == run]
        bars = tuple(_speedup_bar(row, ()) for row in chosen)
        bands.append(Band(chosen[0].place, bars, _noise(chosen[0])))
    return interval_bars(bands, axis=AXIS)


def time_chart(rows: Sequence[ArmRow]) -> Figure:
    """One run: how long the baseline and each arm take in each phase."""
    bands = []
    for phase in PHASES:
        chosen = [row for row in rows if row.phase == phase and not row.is_noise]
        if chosen:
            times = [("baseline", chosen[0].baseline_ms), *((r.arm, r.arm_ms) for r in chosen)]
            bars = tuple(
                Bar(name, figures.milliseconds(ms), ms, chosen[0].source) for name, ms in times
            )
            bands.append(Band(phase, bars))
    return interval_bars(bands, axis="Time in ms", tick_format=",")


def resource_chart(rows: Sequence[ArmRow]) -> Figure | None:
    """One run: tokens/s, peak memory and energy of a step; `None` where none is known.

    Each is drawn as a share of the baseline, for they have three units and one axis.
    """
    batch = [row for row in rows if row.phase == "batch" and not row.is_noise]
    kinds = (
        (
            "Tokens/s",
            [(r.arm, r.baseline_tokens_per_s, r.tokens_per_s) for r in batch],
            figures.rate,
        ),
        (
            "Peak memory",
            [(r.arm, r.baseline_peak_bytes, r.peak_bytes) for r in batch],
            lambda value: figures.byte_size(None if value is None else round(value)),
        ),
        (
            "Energy per step",
            [(r.arm, r.baseline_energy_j, r.energy_j) for r in batch],
            figures.joules,
        ),
    )
    bands = []
    for title, values, write in kinds:
        bars = tuple(
            Bar(arm, f"{write(base)} -> {write(value)}", value / base - 1, batch[0].source)
            for arm, base, value in values
            if base and value is not None
        )
        if bars:
            bands.append(Band(title, bars))
    return interval_bars(bands, axis="Change from the baseline") if bands else None


def steps_chart(rows: Sequence[StepRow]) -> Figure:
    """What each fix adds, in the order in which it was added or left out."""
    bars = tuple(
        Bar(
            row.fix,
            _with_mark(row.text, row.verdict),
            row.speedup,
            row.source,
            row.low,
            row.high,
        )
        for row in rows
    )
    return interval_bars([Band(rows[0].phase, bars)], axis=AXIS)


def _speedup_bar(row: ArmRow, strip: tuple[float, ...]) -> Bar:
    failed = "  parity failed" if row.parity_passed is False else ""
    return Bar(
        label=row.arm,
        text=_with_mark(row.text, row.verdict) + failed,
        value=row.speedup,
        source=row.source,
        low=row.low,
        high=row.high,
        strip=strip,
        is_firm=row.has_enough_blocks,
    )


def _with_mark(text: str, verdict: Verdict) -> str:
    return f"{text}  {VERDICT_MARK[verdict]}"


def _noise(row: ArmRow) -> tuple[float, float] | None:
    if row.noise_low is None or row.noise_high is None:
        return None
    return row.noise_low, row.noise_high
