"""Paired, blocked statistics: how much faster one arm is than another, and how sure that is.

**Estimate.** In each block, the log of baseline time over arm time, so that what a whole block
shares (drift, heat, a neighbour's load) cancels. Over blocks the median, which one bad block cannot
move far. `speedup = exp(median) - 1`.

**Interval.** Resampling blocks for a median only ever lands on a few order statistics, so they are
computed directly: between the k-th smallest and k-th largest block by the binomial distribution,
interpolated as Hettmansperger and Sheather (1986). It needs no resamples and no seed. Under A/A,
each block's sign is decided by the random order inside the block alone, so the coverage does not
rest on how noise is distributed or correlated. Simulated at a nominal 95 % with normal, t(2),
linear-drift, AR(1) 0.95 and rare-spike noise, 20,000 runs each, it covered 94.5 to 95.4 % at 6, 8,
12, 20 and 40 blocks; the percentile bootstrap (4,000 runs) covered 91.9 to 94.8 %. Five blocks
cannot give more than 93.75 % by any such rule: the comparison says so and stays `undecided`.

**Stopping.** A run that stops as soon as its interval is narrow picks lucky blocks: at a nominal
95 % and a look after every block, up to 9.6 % of A/A runs excluded zero. So an interval is drawn
with half the allowed error (97.5 % for a stated 95 %), and no run stops on width before
`MIN_BLOCKS_TO_STOP`. With both, the same simulations (8,000 runs for each noise and each of six
precisions) gave 4.6 % at worst and 3.8 % on average. The price is an interval about 14 % wider.

Each comparison has its own error; a run with many arms and phases multiplies the chances, which is
why a full run shows its A/A arm.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from statistics import NormalDist, median
from typing import TYPE_CHECKING

from harness.record.records import (
    PHASES,
    Arm,
    Comparison,
    Phase,
    Sample,
    Source,
    Throughput,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_BLOCKS_TO_STOP = 8
"""Fewest blocks after which a run may stop because its intervals are narrow."""


def compare(
    samples: Sequence[Sample],
    *,
    arm: str,
    baseline: str,
    phase: Phase,
    source: Source,
    confidence: float = 0.95,
    margin: float = 0.01,
) -> Comparison | None:
    """One arm against the baseline in one phase; `None` where no block timed both.

    Warm-ups and times that are not positive (a clock too coarse) are left out. Where there are too
    few blocks for the asked confidence, the interval is their whole range, `confidence` is what
    that range gives, and the verdict is `undecided`. A modelled clock has no noise to sample: its
    interval is the range over blocks, however few.
    """
    return _compare(
        _block_medians(samples),
        arm=arm,
        baseline=baseline,
        phase=phase,
        source=source,
        confidence=confidence,
        margin=margin,
    )


def compare_all(
    samples: Sequence[Sample],
    arms: Sequence[Arm],
    *,
    source: Source,
    confidence: float = 0.95,
    margin: float = 0.01,
) -> tuple[Comparison, ...]:
    """Compare every other arm, A/A included, with the one of the role `baseline`, in each phase.

    Ordered as `arms`, then as `PHASES`; phases that were not timed are left out, and all is empty
    where no arm is the baseline.
    """
    baseline = next((arm.name for arm in arms if arm.role == "baseline"), None)
    if baseline is None:
        return ()
    medians = _block_medians(samples)
    found = (
        _compare(
            medians,
            arm=arm.name,
            baseline=baseline,
            phase=phase,
            source=source,
            confidence=confidence,
            margin=margin,
        )
        for arm in arms
        if arm.name != baseline
        for phase in PHASES
    )
    return tuple(comparison for comparison in found if comparison is not None)


def block_speedups(
    samples: Sequence[Sample], *, arm: str, baseline: str, phase: Phase
) -> dict[int, float]:
    """Block -> speedup of the arm in that block alone: what the interval is drawn from."""
    medians = _block_medians(samples)
    arm_ms, baseline_ms = medians.get((arm, phase), {}), medians.get((baseline, phase), {})
    return {
        block: baseline_ms[block] / arm_ms[block] - 1
        for block in sorted(arm_ms.keys() & baseline_ms.keys())
    }


def verdict(low: float, high: float, margin: float) -> Verdict:
    """The one verdict for a speedup known to lie in [`low`, `high`].

    In this order: `same` if the whole interval lies within [-margin, margin]; `faster` if
    `low > 0`; `slower` if `high < 0`; else `undecided`. Moving an interval up never makes its
    verdict slower. Raises `ValueError` where `low` exceeds `high` or `margin` is negative.
    """
    if not (low <= high and margin >= 0):
        raise ValueError(f"not an interval and margin: [{low}, {high}], {margin}")
    if -margin <= low and high <= margin:
        return "same"
    if low > 0:
        return "faster"
    if high < 0:
        return "slower"
    return "undecided"


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Interval for the median of the distribution that `values` come from; see the module's text.

    The whole range where there are too few values for `confidence` (see `attainable_confidence`).
    """
    ordered = sorted(values)
    n = len(ordered)
    rank, weight = _rank_and_weight(n, confidence)
    low, high = ordered[rank - 1], ordered[n - rank]
    if weight:
        low += weight * (ordered[rank] - low)
        high += weight * (ordered[n - rank - 1] - high)
    return low, high


def attainable_confidence(num_blocks: int) -> float:
    """Highest confidence that an interval of so many blocks can have: that of their whole range."""
    return 1 - 0.5 ** (num_blocks - 1) if num_blocks > 0 else 0.0


def enough_blocks(num_blocks: int, confidence: float = 0.95) -> bool:
    """Whether this many blocks can give an interval of the stated confidence: 7 for 95 %."""
    return attainable_confidence(num_blocks) >= _drawn_confidence(confidence)


def minimum_detectable(
    log_ratios: Sequence[float], *, confidence: float = 0.95, power: float = 0.8
) -> float | None:
    """Smallest speedup that a run with this noise detects with probability `power`.

    From the width of the interval, read as that of a normal distribution. `None` where there are
    too few blocks for an interval.
    """
    drawn = _drawn_confidence(confidence)
    if not enough_blocks(len(log_ratios), confidence):
        return None
    low, high = median_interval(log_ratios, drawn)
    normal = NormalDist()
    reach = normal.inv_cdf((1 + drawn) / 2)
    return math.expm1((high - low) / 2 * (reach + normal.inv_cdf(power)) / reach)


def is_precise(comparisons: Sequence[Comparison], precision: float) -> bool:
    """Whether every interval is narrow enough to stop: half its width below `precision`.

    The width is that of the ratio of times on a log scale, so that 1 % means 1 % of the time at any
    speedup. Never true without comparisons, nor for measured ones before `MIN_BLOCKS_TO_STOP`.
    """
    return bool(comparisons) and all(
        (c.source != "measured" or c.num_blocks >= MIN_BLOCKS_TO_STOP)
        and (math.log1p(c.high) - math.log1p(c.low)) / 2 < math.log1p(precision)
        for c in comparisons
    )


def throughput(
    samples: Sequence[Sample], arms: Sequence[Arm], num_tokens: int, source: Source
) -> tuple[Throughput, ...]:
    """Steps and tokens per second of each arm, from the median time of its whole batches.

    `num_tokens` is that of one batch. Arms without a timed batch are left out.
    """
    times_ms: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.phase == "batch" and not sample.warmup and sample.duration_ms > 0:
            times_ms[sample.arm].append(sample.duration_ms)
    steps_per_s = {arm: 1000.0 / median(times) for arm, times in times_ms.items()}
    return tuple(
        Throughput(
            arm=arm.name,
            tokens_per_s=num_tokens * steps_per_s[arm.name],
            steps_per_s=steps_per_s[arm.name],
            source=source,
        )
        for arm in arms
        if arm.name in steps_per_s
    )


_Medians = dict[tuple[str, Phase], dict[int, float]]
"""(arm, phase) -> block -> median time in ms."""


def _block_medians(samples: Sequence[Sample]) -> _Medians:
    times: dict[tuple[str, Phase], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if not sample.warmup and sample.duration_ms > 0:
            times[sample.arm, sample.phase][sample.block].append(sample.duration_ms)
    return {
        key: {block: median(values) for block, values in blocks.items()}
        for key, blocks in times.items()
    }


def _compare(
    medians: Mapping[tuple[str, Phase], Mapping[int, float]],
    *,
    arm: str,
    baseline: str,
    phase: Phase,
    source: Source,
    confidence: float,
    margin: float,
) -> Comparison | None:
    arm_ms = medians.get((arm, phase), {})
    baseline_ms = medians.get((baseline, phase), {})
    blocks = sorted(arm_ms.keys() & baseline_ms.keys())
    if not blocks:
        return None
    log_ratios = [math.log(baseline_ms[block] / arm_ms[block]) for block in blocks]
    attainable = attainable_confidence(len(blocks))
    if source == "measured":
        low, high = median_interval(log_ratios, _drawn_confidence(confidence))
        enough = attainable >= confidence
    else:
        low, high = min(log_ratios), max(log_ratios)
        enough = True
    low, high = math.expm1(low), math.expm1(high)
    return Comparison(
        arm=arm,
        baseline=baseline,
        phase=phase,
        speedup=math.expm1(median(log_ratios)),
        low=low,
        high=high,
        verdict=verdict(low, high, margin) if enough else "undecided",
        source=source,
        confidence=confidence if enough else attainable,
        margin=margin,
        num_blocks=len(blocks),
        minimum_detectable=(
            minimum_detectable(log_ratios, confidence=confidence) if source == "measured" else None
        ),
        baseline_median_ms=median(baseline_ms[block] for block in blocks),
        arm_median_ms=median(arm_ms[block] for block in blocks),
    )


def _drawn_confidence(confidence: float) -> float:
    """Half the error is kept for having stopped on the interval's own width."""
    return (1 + confidence) / 2


@cache
def _rank_and_weight(n: int, confidence: float) -> tuple[int, float]:
    """The rank whose order statistics just cover `confidence`, and how far to go to the next one.

    The weight is that of Hettmansperger and Sheather: near the right coverage for any symmetric
    distribution, where a straight line between the two coverages is not.
    """
    rank, covered = 0, 1.0
    tail, term = 0, 1  # of the binomial distribution of n coin flips, times 2**n
    while rank < n // 2:
        tail, term = tail + term, term * (n - rank) // (rank + 1)
        next_covered = 1 - 2 * (tail / 2**n)
        if next_covered < confidence:
            break
        rank, covered = rank + 1, next_covered
    else:
        next_covered = 0.0
    if rank == 0 or 2 * rank >= n:
        return max(rank, 1), 0.0
    share = (covered - confidence) / (covered - next_covered)
    return rank, (n - rank) * share / (rank + (n - 2 * rank) * share)
