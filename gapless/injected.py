"""Slow-downs of known size, injected into a small CPU workload: what are the verdicts worth here?

The workload is a fixed number of equal small products, and a slowed arm does so many per cent more
of them, so the true speedup is known. Arms are interleaved and judged as those of a run are.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from harness.record.records import Record, Sample, Verdict
from harness.stats import compare
from harness.tables import figures
from harness.tables.grid import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOWDOWNS = (0.0, 0.03, 0.10)
PRODUCTS = 400
"""Equal products in one step of the baseline: one more is 0.25 %."""
BLOCKS = 60
MARGIN = 0.01


class Trial(Record, frozen=True, kw_only=True):
    """One comparison of the slowed arm with the baseline."""

    slowdown: float
    verdict: Verdict
    low: float
    high: float
    duration_s: float

    @property
    def true_speedup(self) -> float:
        """Of the slowed arm, below 0 where it is slower."""
        return true_speedup(self.slowdown)


class Outcome(Record, frozen=True, kw_only=True):
    """What came of all trials with one slow-down."""

    slowdown: float
    num_trials: int
    num_right: int
    """`slower` where it was slowed by more than the margin, else anything but `faster` or
    `slower`."""
    num_false: int
    """`faster` or `slower` where nothing was injected, `faster` or `same` where it was."""
    num_undecided: int
    num_covered: int
    """Intervals that hold the true speedup."""
    seconds_per_trial: float


def true_speedup(slowdown: float) -> float:
    """The speedup of an arm that does `slowdown` more of the same work."""
    return 1 / (1 + slowdown) - 1


def take_samples(slowdown: float, seed: int, num_blocks: int = BLOCKS) -> tuple[Sample, ...]:
    """Interleaved samples, in milliseconds, of `baseline` and `slowed`."""
    import numpy as np

    order, matrix = random.Random(seed), np.ones((48, 48), dtype=np.float32)
    out = np.empty_like(matrix)
    repeats = {"baseline": PRODUCTS, "slowed": round(PRODUCTS * (1 + slowdown))}
    samples: list[Sample] = []
    for block in range(-2, num_blocks):
        for arm in order.sample(sorted(repeats), 2):
            start_ns = time.perf_counter_ns()
            for _ in range(repeats[arm]):
                np.matmul(matrix, matrix, out=out)
            samples.append(
                Sample(
                    order=len(samples),
                    block=max(block, -1),
                    arm=arm,
                    phase="batch",
                    duration_ms=(time.perf_counter_ns() - start_ns) / 1e6,
                    warmup=block < 0,
                )
            )
    return tuple(samples)


def judge_samples(samples: Sequence[Sample], slowdown: float, duration_s: float) -> Trial:
    """The verdict that a run with these samples gets."""
    found = compare(
        samples, arm="slowed", baseline="baseline", phase="batch", source="measured", margin=MARGIN
    )
    if found is None:
        raise ValueError("the samples hold no block that timed both arms")
    return Trial(
        slowdown=slowdown,
        verdict=found.verdict,
        low=found.low,
        high=found.high,
        duration_s=duration_s,
    )


def run_trials(num_trials: int, slowdowns: Sequence[float] = SLOWDOWNS) -> tuple[Trial, ...]:
    """All trials, the slow-downs taking turns, so that drift meets them alike."""
    trials = []
    for number in range(num_trials):
        for slowdown in slowdowns:
            began_s = time.monotonic()
            samples = take_samples(slowdown, seed=number)
            trials.append(judge_samples(samples, slowdown, time.monotonic() - began_s))
    return tuple(trials)


def outcomes(trials: Sequence[Trial]) -> tuple[Outcome, ...]:
    """Trials counted by their slow-down, smallest first."""
    counted = []
    for slowdown in sorted({trial.slowdown for trial in trials}):
        own = [trial for trial in trials if trial.slowdown == slowdown]
        right: set[Verdict] = {"slower"} if slowdown > MARGIN else {"same", "undecided"}
        wrong: set[Verdict] = {"faster", "same"} if slowdown > MARGIN else {"faster", "slower"}
        counted.append(
            Outcome(
                slowdown=slowdown,
                num_trials=len(own),
                num_right=sum(trial.verdict in right for trial in own),
                num_false=sum(trial.verdict in wrong for trial in own),
                num_undecided=sum(trial.verdict == "undecided" for trial in own),
                num_covered=sum(trial.low <= trial.true_speedup <= trial.high for trial in own),
                seconds_per_trial=sum(trial.duration_s for trial in own) / len(own),
            )
        )
    return tuple(counted)


def outcome_table(found: Sequence[Outcome]) -> Table:
    """One row a slow-down."""
    rows = tuple(
        (
            "none (A/A)" if one.slowdown == 0 else figures.percent(one.slowdown, signed=False),
            str(one.num_trials),
            str(one.num_right),
            str(one.num_false),
            str(one.num_undecided),
            figures.percent(one.num_covered / one.num_trials, signed=False),
            figures.seconds(one.seconds_per_trial),
        )
        for one in found
    )
    return Table(
        columns=("Injected slow-down", "Trials", "Right", "False", "Undecided", "Truth in interval",
                 "Time of one"),
        rows=rows,
        title="Verdicts on slow-downs of known size, on this machine as it is now",
    )  # fmt: skip


def in_words(found: Sequence[Outcome]) -> str:
    """What this machine can tell apart, in one sentence."""
    told = [
        one.slowdown for one in found if one.slowdown > MARGIN and one.num_right == one.num_trials
    ]
    if not told:
        return (
            "This machine told none of the injected slow-downs apart every time: stop other work, "
            "or measure for longer."
        )
    return (
        f"This machine told a slow-down of {figures.percent(min(told), signed=False)} apart in "
        f"every trial of {BLOCKS} blocks."
    )
