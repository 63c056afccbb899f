"""What is measured after the timed blocks, arm by arm: memory, syncs and energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.bench.arm_switch import attached
from harness.bench.child_events import EnergyMeasured, MemoryMeasured, SyncsCounted, Traced
from harness.bench.memory import measure_peaks
from harness.bench.plan import BenchPlan, import_object
from harness.bench.training_state import TrainingState
from harness.errors import GaplessError
from harness.findings.answering import with_answers
from harness.record.attachments import ArmAudit
from harness.record.records import Energy

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from harness.bench.arm_switch import ArmSwitch
    from harness.bench.sync_probe import SyncProbe
    from harness.bench.turns import Turns
    from harness.machine.steadiness import EnergyMeter

_INSPECTION_LIMIT = 2.0
"""No arm is inspected once the run has taken this many budgets."""
_LARGEST_TRACE_BYTES = 32 << 20
_ENERGY_SECONDS = 1.0
"""Long against the tens of milliseconds between two updates of a GPU's energy counter."""


def inspects(plan: BenchPlan) -> bool:
    """Whether the plan asks for anything but times."""
    return plan.measure_memory or plan.measure_syncs or plan.measure_energy


def inspect_arms(turns: Turns, began_s: float) -> None:
    """Measure memory, syncs and energy, each arm with attachments of its own, so that no arm's peak
    holds the pools of another; leave the weights as they were. `began_s`: start of the run.
    """
    _Inspection(turns).all_arms(began_s)


@dataclass(frozen=True)
class _Inspection:
    """One pass over the arms."""

    turns: Turns

    def all_arms(self, began_s: float) -> None:
        turns = self.turns
        probes = turns.backend.memory_probes() if turns.plan.measure_memory else ()
        own_probe = self._own_sync_probe()
        sync_probe = turns.backend.sync_probe() if turns.plan.measure_syncs else None
        sync_probe = None if own_probe else sync_probe
        meter = turns.backend.energy_meter() if turns.plan.measure_energy else None
        if not (probes or sync_probe or own_probe or meter):
            return
        kept = TrainingState(turns.workload) if turns.backend.has_values else None
        inspect_s, turns.remaining_s = turns.now(), None
        for number, arm in enumerate(turns.arm_names):
            if number:
                arm_s = (turns.now() - inspect_s) / number
                turns.remaining_s = arm_s * (len(turns.choices) - number)
            if turns.now() - began_s > _INSPECTION_LIMIT * turns.plan.budget_s:
                left = ", ".join(turns.arm_names[number:])
                turns.note(f"The time was up before memory and syncs of {left} were measured.")
                return
            with attached(turns.choices, turns.optimizations, turns.workload.model) as switch:
                if probes:
                    turns.prepare("memory", switch, arm, block=0)
                    peaks = measure_peaks(
                        turns.workload, probes, arm=arm, source=turns.backend.source
                    )
                    turns.emit(MemoryMeasured(memory=peaks))
                if sync_probe:
                    turns.prepare("syncs", switch, arm, block=0)
                    self._count_syncs(sync_probe, arm)
                if meter:
                    turns.prepare("energy", switch, arm, block=0)
                    self._measure_energy(meter, arm)
            if kept is not None:
                kept.restore()
        # Last, so that what this probe imports and builds is in no arm's memory.
        if own_probe is not None:
            for arm in turns.arm_names:
                turns.announce("syncs", arm)
                self._count_syncs(own_probe, arm)

    def _attached(self) -> AbstractContextManager[ArmSwitch]:
        turns = self.turns
        return attached(turns.choices, turns.optimizations, turns.workload.model)

    def _count_syncs(self, probe: SyncProbe, arm: str) -> None:
        try:
            seen = probe(self.turns.workload, arm)
            answers = self.turns.plan.answers
            report = None if seen.audit is None else with_answers(seen.audit, answers)
        except GaplessError as error:
            self.turns.note(f"The syncs of arm {arm!r} were not counted: {error}")
        else:
            audit = None if report is None else ArmAudit(arm=arm, report=report)
            self.turns.emit(SyncsCounted(syncs=seen.syncs, overlap=seen.overlap, audit=audit))
            if seen.trace is not None and self._keeps_timeline(arm):
                self._keep_trace(arm, seen.trace)

    def _keeps_timeline(self, arm: str) -> bool:
        """Those of the A/A arm would be the baseline's again."""
        role = next(one.role for one in self.turns.plan.arms if one.name == arm)
        return self.turns.plan.keep_timelines and role != "a/a"

    def _keep_trace(self, arm: str, trace: bytes) -> None:
        if len(trace) > _LARGEST_TRACE_BYTES:
            size, limit = len(trace) >> 20, _LARGEST_TRACE_BYTES >> 20
            self.turns.note(
                f"The timeline of arm {arm!r} was not kept: it has {size} MiB and a run keeps "
                f"{limit} MiB an arm."
            )
        else:
            self.turns.emit(Traced(arm=arm, content=trace))

    def _measure_energy(self, meter: EnergyMeter, arm: str) -> None:
        clock = self.turns.backend.clock()
        clock.start()
        meter.start()
        began_s, num_steps = self.turns.now(), 0
        while num_steps == 0 or self.turns.now() - began_s < _ENERGY_SECONDS:
            self.turns.workload.forward()
            self.turns.workload.backward()
            self.turns.workload.optimizer_step()
            num_steps += 1
        clock.finish()
        energy_j = meter.stop()
        if energy_j is not None:
            energy = Energy(
                arm=arm, energy_j=energy_j / num_steps, source=self.turns.backend.source
            )
            self.turns.emit(EnergyMeasured(energy=energy))

    def _own_sync_probe(self) -> SyncProbe | None:
        if self.turns.plan.sync_probe is None or not self.turns.plan.measure_syncs:
            return None
        probe: SyncProbe = import_object(self.turns.plan.sync_probe)(self.turns.plan)
        return probe
