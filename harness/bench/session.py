"""The sequence of one run, in the process it is called in: build, warm up, compare, time, inspect.

Everything timed shares one workload and one set of attachments, toggled in place. Memory and syncs
come last: they are not needed for a verdict, and each arm gets attachments of its own there, so
that no arm's peak holds the pools of another.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.bench.arm_switch import (
    ArmSwitch,
    attached,
    check_requirements,
    parity_tolerance,
    resolve_arms,
)
from harness.bench.child_events import (
    Built,
    EndCause,
    Ended,
    EnergyMeasured,
    Event,
    MachineSeen,
    MemoryMeasured,
    Noted,
    ParityChecked,
    Stage,
    StageName,
    SteadinessSeen,
    SyncsCounted,
    Timed,
    Traced,
)
from harness.bench.memory import measure_peaks
from harness.bench.parity import ParityCheck, model_dtype
from harness.bench.phase_clock import StepClock, time_step
from harness.bench.plan import BenchPlan, import_object
from harness.bench.schedule import Pace, StopRule, block_orders
from harness.bench.timed_device import Backend, open_backend
from harness.bench.training_state import TrainingState, seed_everything
from harness.errors import GaplessError, UsageError
from harness.findings.answering import with_answers
from harness.machine.machine import describe_machine
from harness.machine.steadiness import SteadinessMonitor
from harness.record.attachments import ArmAudit
from harness.record.records import PHASES, Energy, Sample
from harness.stats import compare_all, is_precise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.bench.sync_probe import SyncProbe
    from harness.machine.steadiness import EnergyMeter
    from harness.workload import Optimization, Workload

_WARMUP_BLOCK = -1
_INSPECTION_STEPS = 5
"""Steps an arm takes in the memory and sync passes, for the time set aside for them."""
_INSPECTION_SHARE = 0.25
"""At most this share of the budget is set aside; the timed blocks come first."""
_INSPECTION_LIMIT = 2.0
"""No arm is inspected once the run has taken this many budgets."""
_LARGEST_TRACE_BYTES = 32 << 20
_ENERGY_SECONDS = 1.0
"""Long against the tens of milliseconds between two updates of a GPU's energy counter."""


class Stopped(Exception):  # noqa: N818 - it is a request, not an error
    """The parent asked to stop; raised between two steps."""


def measure(
    plan: BenchPlan,
    emit: Callable[[Event], None],
    should_stop: Callable[[], bool],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Carry out a plan and `emit` what is seen, as it is seen; the last event is `Ended`.

    `should_stop` is asked between steps; `now` gives seconds for the budget. Raises `UsageError`
    for a plan that cannot run here, and whatever the workload raises.
    """
    emit(Stage(name="build"))
    with open_backend(plan) as backend:
        emit(MachineSeen(machine=describe_machine(plan.device)))
        workload, optimizations = _build(plan, backend, emit)
        choices = resolve_arms(plan.arms, optimizations)
        check_requirements(choices, optimizations, workload.model)
        run = _Run(plan, backend, workload, optimizations, choices, emit, should_stop, now)
        try:
            with _quiet_gc():
                cause = run.compare()
                run.inspect()
        except Stopped:
            cause = "stopped"
        emit(Ended(cause=cause))


def _build(
    plan: BenchPlan, backend: Backend, emit: Callable[[Event], None]
) -> tuple[Workload, dict[str, Optimization]]:
    seed_everything(plan.seed)
    workload: Workload
    optimizations: dict[str, Optimization]
    workload, optimizations = import_object(plan.factory)(plan.spec)
    if workload.device.type != backend.device_type:
        raise UsageError(
            f"The workload stands on {workload.device.type} but the run is timed on "
            f"{plan.device}; give both the same device."
        )
    emit(
        Built(
            scenario=workload.describe(),
            num_tokens=workload.num_tokens,
            source=backend.source,
        )
    )
    return workload, optimizations


@dataclass
class _Run:
    """One run under way: what it works on, and the samples so far."""

    plan: BenchPlan
    backend: Backend
    workload: Workload
    optimizations: Mapping[str, Optimization]
    choices: Mapping[str, Mapping[str, str]]
    emit: Callable[[Event], None]
    should_stop: Callable[[], bool]
    now: Callable[[], float]
    samples: list[Sample] = field(default_factory=list)
    remaining_s: float | None = None
    began_s: float = 0.0

    def compare(self) -> EndCause:
        """Warm up, check parity and time blocks, with every arm attached once.

        The baseline steps first, so that parity looks at weights that train (an adapter starts out
        as zero). The others step only once they have shown that they compute the same: a broken
        one would spoil the weights for all.
        """
        self.began_s = self.now()
        deadline_s = self.began_s + self.plan.budget_s
        clock = self.backend.clock()
        with (
            self._watch_steadiness(),
            attached(self.choices, self.optimizations, self.workload.model) as switch,
        ):
            baseline = self.plan.baseline.name
            num_steps = self.plan.warmup_steps
            block_s = self._warm_up(switch, clock, baseline, num_steps, deadline_s)
            checks = self._checks_parity()
            arms = self._check_parity(switch) if checks else self._arm_names()
            if len(arms) < 2:
                return "no-arm-left"
            if checks:
                # The parity pass was one.
                num_steps = max(1, num_steps - 1)
            for arm in arms:
                if arm != baseline:
                    block_s += self._warm_up(switch, clock, arm, num_steps, deadline_s)
            # What the arms keep from now on need not be looked at again.
            gc.freeze()
            return self._time_blocks(switch, clock, arms, block_s, deadline_s)

    def inspect(self) -> None:
        """Measure memory, syncs and energy, arm by arm; leave the weights as they were."""
        probes = self.backend.memory_probes() if self.plan.measure_memory else ()
        own_probe = self._own_sync_probe()
        sync_probe = self.backend.sync_probe() if self.plan.measure_syncs else None
        sync_probe = None if own_probe else sync_probe
        meter = self.backend.energy_meter() if self.plan.measure_energy else None
        if not (probes or sync_probe or own_probe or meter):
            return
        kept = TrainingState(self.workload) if self.backend.has_values else None
        inspect_s, self.remaining_s = self.now(), None
        for number, arm in enumerate(self._arm_names()):
            if number:
                arm_s = (self.now() - inspect_s) / number
                self.remaining_s = arm_s * (len(self.choices) - number)
            if self.now() - self.began_s > _INSPECTION_LIMIT * self.plan.budget_s:
                left = ", ".join(self._arm_names()[number:])
                self.emit(Noted(text=f"The time was up before memory and syncs of {left}."))
                return
            with attached(self.choices, self.optimizations, self.workload.model) as switch:
                if probes:
                    self._prepare("memory", switch, arm, block=0)
                    peaks = measure_peaks(
                        self.workload, probes, arm=arm, source=self.backend.source
                    )
                    self.emit(MemoryMeasured(memory=peaks))
                if sync_probe:
                    self._prepare("syncs", switch, arm, block=0)
                    self._count_syncs(sync_probe, arm)
                if meter:
                    self._prepare("energy", switch, arm, block=0)
                    self._measure_energy(meter, arm)
            if kept is not None:
                kept.restore()
        # Last, so that what this probe imports and builds is in no arm's memory.
        if own_probe is not None:
            for arm in self._arm_names():
                self._announce("syncs", arm)
                self._count_syncs(own_probe, arm)

    @contextmanager
    def _watch_steadiness(self) -> Iterator[None]:
        """Report how steady the machine was, also where what is inside fails or is stopped."""
        if self.backend.source != "measured":
            yield
            return
        monitor = SteadinessMonitor(self.plan.device)
        monitor.start()
        try:
            yield
        finally:
            self.emit(SteadinessSeen(steadiness=monitor.stop()))

    def _warm_up(
        self, switch: ArmSwitch, clock: StepClock, arm: str, num_steps: int, deadline_s: float
    ) -> float:
        """Seconds of the arm's last warm-up step; it takes one at least."""
        step_s = 0.0
        for step in range(num_steps):
            began_s = self.now()
            if step and began_s + step_s > deadline_s:
                break
            self._take_turn("warm-up", switch, clock, arm, _WARMUP_BLOCK, batch=step)
            step_s = self.now() - began_s
        return step_s

    def _checks_parity(self) -> bool:
        if self.plan.measure_parity and not self.backend.has_values:
            self.emit(Noted(text="No parity: the step was modelled on shapes, without values."))
            return False
        return self.plan.measure_parity

    def _check_parity(self, switch: ArmSwitch) -> list[str]:
        """The baseline and every arm that computes what it computes."""
        baseline = self.plan.baseline.name
        self._announce("parity", baseline)
        check = ParityCheck(self.workload, switch.select, baseline, self.plan.seed)
        dtype = model_dtype(self.workload.model)
        passed = [baseline]
        for arm in self._arm_names():
            if arm == baseline:
                continue
            self._announce("parity", arm)
            tolerance = parity_tolerance(
                self.choices[arm], self.choices[baseline], self.optimizations, dtype
            )
            results = check.check(arm, tolerance)
            self.emit(ParityChecked(parity=results))
            if all(result.passed for result in results):
                passed.append(arm)
            else:
                self.emit(Noted(text=f"Arm {arm!r} failed parity, so it was not timed."))
        return passed

    def _time_blocks(
        self,
        switch: ArmSwitch,
        clock: StepClock,
        arms: Sequence[str],
        block_s: float,
        deadline_s: float,
    ) -> EndCause:
        reserve_s = min(
            _INSPECTION_STEPS * block_s if self._inspects() else 0.0,
            _INSPECTION_SHARE * self.plan.budget_s,
        )
        rule = StopRule(
            precision=self.plan.precision,
            deadline_s=deadline_s,
            reserve_s=reserve_s,
            min_blocks=self.plan.min_blocks,
            max_blocks=self.plan.max_blocks,
        )
        pace = Pace(block_s)
        precise, half_width = False, None
        for block, order in enumerate(block_orders(arms, self.plan.seed)):
            if rule.wants_interval(block):
                precise, half_width = self._precision()
            began_s = self.now()
            cause = rule.decide(
                num_blocks=block, now_s=began_s, block_s=pace.block_s, precise=precise
            )
            if cause is not None:
                self._note_width(cause, half_width)
                return cause
            self.remaining_s = reserve_s + rule.remaining_s(
                num_blocks=block, now_s=began_s, block_s=pace.block_s, half_width=half_width
            )
            for arm in order:
                self._take_turn("timing", switch, clock, arm, block, batch=block)
            pace.add(self.now() - began_s)
        raise AssertionError("block orders never end")

    def _take_turn(
        self,
        stage: StageName,
        switch: ArmSwitch,
        clock: StepClock,
        arm: str,
        block: int,
        batch: int,
    ) -> None:
        """Time one step of one arm: the same batch and random numbers for every arm of a block."""
        self._prepare(stage, switch, arm, block=batch)
        times = time_step(self.workload, clock)
        order = len(self.samples) // len(PHASES)
        taken = tuple(
            Sample(
                order=order,
                block=block,
                arm=arm,
                phase=phase,
                duration_ms=times[phase],
                warmup=block == _WARMUP_BLOCK,
            )
            for phase in PHASES
        )
        self.samples.extend(taken)
        self.emit(Timed(samples=taken))

    def _prepare(self, stage: StageName, switch: ArmSwitch, arm: str, block: int) -> None:
        """All that lies before a timed region."""
        self._announce(stage, arm, block)
        switch.select(arm)
        self.workload.select_batch(block)
        gc.collect()
        seed_everything(self.plan.seed + block)

    def _announce(self, stage: StageName, arm: str, block: int | None = None) -> None:
        if self.should_stop():
            raise Stopped
        shown = block if stage == "timing" else None
        self.emit(Stage(name=stage, arm=arm, block=shown, remaining_s=self.remaining_s))

    def _precision(self) -> tuple[bool, float | None]:
        """Whether every interval asked about is narrow enough, and half the widest (log scale)."""
        comparisons = [
            comparison
            for comparison in compare_all(
                self.samples,
                self.plan.arms,
                source=self.backend.source,
                confidence=self.plan.confidence,
                margin=self.plan.margin,
            )
            if comparison.phase in self.plan.phases
        ]
        widths = [math.log1p(c.high) - math.log1p(c.low) for c in comparisons]
        widest = max(widths, default=None)
        return (
            is_precise(comparisons, self.plan.precision),
            None if widest is None else widest / 2,
        )

    def _note_width(self, cause: EndCause, half_width: float | None) -> None:
        if cause == "precision":
            return
        limit = "budget" if cause == "budget" else "largest number of blocks"
        reached = (
            f"the widest was ±{100 * half_width:.2g} %"
            if half_width is not None
            else f"fewer than {self.plan.min_blocks} blocks were timed"
        )
        text = (
            f"The {limit} ended the run before every interval was as narrow as "
            f"±{100 * self.plan.precision:.2g} %; {reached}."
        )
        self.emit(Noted(text=text))

    def _count_syncs(self, probe: SyncProbe, arm: str) -> None:
        try:
            seen = probe(self.workload, arm)
        except GaplessError as error:
            self.emit(Noted(text=f"The syncs of arm {arm!r} were not counted: {error}"))
        else:
            report = None if seen.audit is None else with_answers(seen.audit, self.plan.answers)
            audit = None if report is None else ArmAudit(arm=arm, report=report)
            self.emit(SyncsCounted(syncs=seen.syncs, overlap=seen.overlap, audit=audit))
            if seen.trace is not None and self._keeps_timeline(arm):
                self._keep_trace(arm, seen.trace)

    def _keeps_timeline(self, arm: str) -> bool:
        """The second baseline's would be the first one's again."""
        role = next(one.role for one in self.plan.arms if one.name == arm)
        return self.plan.keep_timelines and role != "a/a"

    def _keep_trace(self, arm: str, trace: bytes) -> None:
        if len(trace) > _LARGEST_TRACE_BYTES:
            size, limit = len(trace) >> 20, _LARGEST_TRACE_BYTES >> 20
            self.emit(
                Noted(
                    text=f"The timeline of arm {arm!r} was not kept: it has {size} MiB and a run "
                    f"keeps {limit} MiB an arm."
                )
            )
        else:
            self.emit(Traced(arm=arm, content=trace))

    def _measure_energy(self, meter: EnergyMeter, arm: str) -> None:
        clock = self.backend.clock()
        clock.start()
        meter.start()
        began_s, num_steps = self.now(), 0
        while num_steps == 0 or self.now() - began_s < _ENERGY_SECONDS:
            self.workload.forward()
            self.workload.backward()
            self.workload.optimizer_step()
            num_steps += 1
        clock.finish()
        energy_j = meter.stop()
        if energy_j is not None:
            energy = Energy(arm=arm, energy_j=energy_j / num_steps, source=self.backend.source)
            self.emit(EnergyMeasured(energy=energy))

    def _inspects(self) -> bool:
        return self.plan.measure_memory or self.plan.measure_syncs or self.plan.measure_energy

    def _own_sync_probe(self) -> SyncProbe | None:
        if self.plan.sync_probe is None or not self.plan.measure_syncs:
            return None
        probe: SyncProbe = import_object(self.plan.sync_probe)(self.plan)
        return probe

    def _arm_names(self) -> list[str]:
        return list(self.choices)


@contextmanager
def _quiet_gc() -> Iterator[None]:
    """No collection unless asked for; what lives now (torch, the model) is not looked at again, so
    that the one collection before each step is short."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
