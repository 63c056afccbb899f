"""The timed part of a run: warm-up, parity, and interleaved blocks until the rule says stop."""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.bench.arm_switch import ArmSwitch, attached, parity_tolerance
from harness.bench.child_events import EndCause, ParityChecked, SteadinessSeen
from harness.bench.parity import ParityCheck, model_dtype
from harness.bench.schedule import Pace, StopRule, block_orders
from harness.bench.turns import WARMUP_BLOCK, Turns
from harness.counts import counted
from harness.machine.steadiness import SteadinessMonitor
from harness.stats import compare_all, is_precise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.bench.phase_clock import StepClock


_INSPECTION_STEPS = 5
"""Steps an arm takes in the memory and sync passes, for the time set aside for them."""
_INSPECTION_SHARE = 0.25
"""At most this share of the budget is set aside; the timed blocks come first."""


def compare_arms(turns: Turns, *, deadline_s: float, inspects: bool) -> EndCause:
    """Warm up, check parity and time blocks, with every arm attached once; says what ended it.

    The baseline steps first, so that parity looks at weights that train (an adapter starts out as
    zero). The others step only once they have shown that they compute the same: a broken one would
    spoil the weights for all. `inspects`: time is set aside for what comes after the blocks.
    """
    plan = turns.plan
    with (
        _watch_steadiness(turns),
        attached(turns.choices, turns.optimizations, turns.workload.model) as switch,
    ):
        comparison = _Comparison(turns, switch, turns.backend.clock(), deadline_s)
        baseline = plan.baseline.name
        num_steps = plan.warmup_steps
        block_s = comparison.warm_up(baseline, num_steps)
        checks = _checks_parity(turns)
        arms = comparison.check_parity() if checks else turns.arm_names
        if len(arms) < 2:
            return "no-arm-left"
        if checks:
            # The parity pass was one.
            num_steps = max(1, num_steps - 1)
        for arm in arms:
            if arm != baseline:
                block_s += comparison.warm_up(arm, num_steps)
        # What the arms keep from now on need not be looked at again.
        gc.freeze()
        reserve_s = min(
            _INSPECTION_STEPS * block_s if inspects else 0.0, _INSPECTION_SHARE * plan.budget_s
        )
        return comparison.time_blocks(arms, block_s, reserve_s)


@dataclass(frozen=True)
class _Comparison:
    """The arms of one run, attached and ready to take turns."""

    turns: Turns
    switch: ArmSwitch
    clock: StepClock
    deadline_s: float

    def warm_up(self, arm: str, num_steps: int) -> float:
        """Seconds of the arm's last warm-up step; it takes one at least."""
        step_s = 0.0
        for step in range(num_steps):
            began_s = self.turns.now()
            if step and began_s + step_s > self.deadline_s:
                break
            self.turns.take("warm-up", self.switch, self.clock, arm, WARMUP_BLOCK, batch=step)
            step_s = self.turns.now() - began_s
        return step_s

    def check_parity(self) -> list[str]:
        """Names of the baseline and of every arm that passes parity."""
        baseline = self.turns.plan.baseline.name
        self.turns.announce("parity", baseline)
        check = ParityCheck(self.turns.workload, self.switch.select, baseline, self.turns.plan.seed)
        dtype = model_dtype(self.turns.workload.model)
        passed = [baseline]
        for arm in self.turns.arm_names:
            if arm == baseline:
                continue
            self.turns.announce("parity", arm)
            tolerance = parity_tolerance(
                self.turns.choices[arm],
                self.turns.choices[baseline],
                self.turns.optimizations,
                dtype,
            )
            results = check.check(arm, tolerance)
            self.turns.emit(ParityChecked(parity=results))
            if all(result.passed for result in results):
                passed.append(arm)
            else:
                self.turns.note(f"Arm {arm!r} failed parity, so it was not timed.")
        return passed

    def time_blocks(self, arms: Sequence[str], block_s: float, reserve_s: float) -> EndCause:
        """Time blocks until the rule says stop; `reserve_s` of the budget are left over."""
        rule = StopRule(
            precision=self.turns.plan.precision,
            deadline_s=self.deadline_s,
            reserve_s=reserve_s,
            min_blocks=self.turns.plan.min_blocks,
            max_blocks=self.turns.plan.max_blocks,
        )
        pace = Pace(block_s)
        precise, half_width = False, None
        for block, order in enumerate(block_orders(arms, self.turns.plan.seed)):
            if rule.wants_interval(block):
                precise, half_width = self._precision()
            began_s = self.turns.now()
            cause = rule.decide(
                num_blocks=block, now_s=began_s, block_s=pace.block_s, precise=precise
            )
            if cause is not None:
                self._note_width(cause, half_width)
                return cause
            self.turns.remaining_s = reserve_s + rule.remaining_s(
                num_blocks=block, now_s=began_s, block_s=pace.block_s, half_width=half_width
            )
            for arm in order:
                self.turns.take("timing", self.switch, self.clock, arm, block, batch=block)
            pace.add(self.turns.now() - began_s)
        raise AssertionError("block orders never end")

    def _precision(self) -> tuple[bool, float | None]:
        """Whether every interval asked about is narrow enough, and half the widest (log scale)."""
        comparisons = [
            comparison
            for comparison in compare_all(
                self.turns.samples,
                self.turns.plan.arms,
                source=self.turns.backend.source,
                confidence=self.turns.plan.confidence,
                margin=self.turns.plan.margin,
            )
            if comparison.phase in self.turns.plan.phases
        ]
        widths = [math.log1p(c.high) - math.log1p(c.low) for c in comparisons]
        widest = max(widths, default=None)
        return (
            is_precise(comparisons, self.turns.plan.precision),
            None if widest is None else widest / 2,
        )

    def _note_width(self, cause: EndCause, half_width: float | None) -> None:
        # A modelled clock has no noise that more blocks would average out.
        if cause == "precision" or self.turns.backend.source != "measured":
            return
        limit = "budget" if cause == "budget" else "largest number of blocks"
        reached = (
            f"the widest was ±{100 * half_width:.2g} %"
            if half_width is not None
            else f"fewer than {counted(self.turns.plan.min_blocks, 'block')} were timed"
        )
        text = (
            f"The {limit} ended the run before every interval was as narrow as "
            f"±{100 * self.turns.plan.precision:.2g} %; {reached}."
        )
        self.turns.note(text)


@contextmanager
def _watch_steadiness(turns: Turns) -> Iterator[None]:
    """Report how steady the machine was, also where what is inside fails or is stopped."""
    if turns.backend.source != "measured":
        yield
        return
    monitor = SteadinessMonitor(turns.plan.device)
    monitor.start()
    try:
        yield
    finally:
        turns.emit(SteadinessSeen(steadiness=monitor.stop()))


def _checks_parity(turns: Turns) -> bool:
    if turns.plan.measure_parity and not turns.backend.has_values:
        turns.note("No parity: the step was modelled on shapes, without values.")
        return False
    return turns.plan.measure_parity
