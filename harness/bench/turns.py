"""The turns of a run: which arm runs now, on which batch, and how long its steps took."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.bench.child_events import Event, Noted, Stage, StageName, Timed
from harness.bench.phase_clock import StepClock, time_step
from harness.bench.training_state import seed_everything
from harness.record.records import PHASES, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.bench.arm_switch import ArmSwitch
    from harness.bench.plan import BenchPlan
    from harness.bench.timed_device import Backend
    from harness.workload import Optimization, Workload

WARMUP_BLOCK = -1
"""Block number of samples that no comparison uses."""


class Stopped(Exception):  # noqa: N818 - it is a request, not an error
    """The parent asked to stop; raised between two steps."""


@dataclass
class Turns:
    """One run in progress: what it works on, the samples so far, and where events are sent."""

    plan: BenchPlan
    backend: Backend
    workload: Workload
    optimizations: Mapping[str, Optimization]
    choices: Mapping[str, Mapping[str, str]]
    """Arm -> variant of each optimization."""
    emit: Callable[[Event], None]
    should_stop: Callable[[], bool]
    now: Callable[[], float]
    """Seconds, for the budget."""
    samples: list[Sample] = field(default_factory=list)
    remaining_s: float | None = None
    """Reported with each stage; `None` where it cannot be known."""

    @property
    def arm_names(self) -> list[str]:
        """Every arm of the plan, in its order."""
        return list(self.choices)

    def note(self, text: str) -> None:
        """Add a sentence to the record."""
        self.emit(Noted(text=text))

    def take(
        self,
        stage: StageName,
        switch: ArmSwitch,
        clock: StepClock,
        arm: str,
        block: int,
        batch: int,
    ) -> None:
        """Time one step of one arm: the same batch and random numbers for every arm of a block."""
        self.prepare(stage, switch, arm, block=batch)
        times = time_step(self.workload, clock)
        order = len(self.samples) // len(PHASES)
        taken = tuple(
            Sample(
                order=order,
                block=block,
                arm=arm,
                phase=phase,
                duration_ms=times[phase],
                warmup=block == WARMUP_BLOCK,
            )
            for phase in PHASES
        )
        self.samples.extend(taken)
        self.emit(Timed(samples=taken))

    def prepare(self, stage: StageName, switch: ArmSwitch, arm: str, block: int) -> None:
        """Do all that lies before a timed region: select the arm and the batch, collect, seed."""
        self.announce(stage, arm, block)
        switch.select(arm)
        self.workload.select_batch(block)
        gc.collect()
        seed_everything(self.plan.seed + block)

    def announce(self, stage: StageName, arm: str, block: int | None = None) -> None:
        """Report what comes next. Raises `Stopped` where the parent asked to stop."""
        if self.should_stop():
            raise Stopped
        shown = block if stage == "timing" else None
        self.emit(Stage(name=stage, arm=arm, block=shown, remaining_s=self.remaining_s))
