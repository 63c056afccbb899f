"""Verdicts on slow-downs of known size, on a quiet and on a loaded machine, beside other tools'.

    python -m benchmarks.under_fire [--trials 100] [--load 8]

Every rule judges the same interleaved samples: gapless by its interval and margin;
torch.utils.benchmark by whether the two medians lie further apart than their quartiles reach (what
its table shows); pyperf by its t-test at 95 % (`pyperf.is_significant`, where pyperf is installed).
A false alarm is a difference said where none was injected, a miss is none said, or one of the wrong
direction, where there was one.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from gapless.injected import SLOWDOWNS, judge_samples, take_samples, true_speedup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.record.records import Sample

Said = dict[str, str]
"""Rule -> `slower`, `faster` or `none`."""


def rules(samples: Sequence[Sample], slowdown: float) -> tuple[Said, bool]:
    """What each rule says of the same samples, and whether our interval holds the truth."""
    trial = judge_samples(samples, slowdown, 0.0)
    base, slow = (
        [s.duration_ms for s in samples if s.arm == arm and not s.warmup]
        for arm in ("baseline", "slowed")
    )
    said = {"gapless": trial.verdict if trial.verdict in ("slower", "faster") else "none"}
    direction = "slower" if np.median(slow) > np.median(base) else "faster"
    low_b, high_b = np.percentile(base, (25, 75))
    low_s, high_s = np.percentile(slow, (25, 75))
    said["torch.utils.benchmark"] = direction if low_s > high_b or low_b > high_s else "none"
    if importlib.util.find_spec("pyperf") is not None:
        from pyperf._utils import is_significant

        said["pyperf"] = direction if is_significant(base, slow)[0] else "none"
    return said, trial.low <= true_speedup(slowdown) <= trial.high


@contextmanager
def load(num_processes: int) -> Iterator[None]:
    """So many other processes that compute all the time."""
    burn = [sys.executable, "-c", "while True: sum(range(10_000))"]
    others = [subprocess.Popen(burn) for _ in range(num_processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(name: str, num_trials: int) -> None:
    alarms: dict[tuple[float, str], int] = {}
    covered = dict.fromkeys(SLOWDOWNS, 0)
    began_s = time.monotonic()
    for number in range(num_trials):
        for slowdown in SLOWDOWNS:
            said, holds = rules(take_samples(slowdown, seed=number), slowdown)
            covered[slowdown] += holds
            for rule, word in said.items():
                wrong = word != ("slower" if slowdown else "none")
                alarms[slowdown, rule] = alarms.get((slowdown, rule), 0) + wrong
    seconds = (time.monotonic() - began_s) / (num_trials * len(SLOWDOWNS))
    print(f"{name}: {num_trials} trials each, {seconds:.2f} s to a verdict")
    for (slowdown, rule), wrong in alarms.items():
        what = "false alarms" if not slowdown else f"misses of {slowdown:.0%}"
        print(f"  {what:<16} {rule:<22} {wrong / num_trials:.1%}")
    for slowdown, holds in covered.items():
        print(f"  truth in gapless's interval at {slowdown:.0%}: {holds / num_trials:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--load", type=int, default=8)
    asked = parser.parse_args()
    measure("quiet", asked.trials)
    with load(asked.load):
        measure(f"beside {asked.load} busy processes", asked.trials)


if __name__ == "__main__":
    main()
