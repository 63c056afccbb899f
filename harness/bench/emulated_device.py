"""The bench on an emulated GPU: the CUDA backend, answered by the emulator's clock.

The bench's own code runs as it is. What differs is that syncs are counted by the clock, where on a
real GPU the profiler does it, and that without values there is nothing to compare for parity.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from harness.audit.emulated.audit_clock import timeline_of
from harness.audit.emulated.step_session import StepSession
from harness.audit.portable import portable
from harness.bench.sync_probe import SyncProbe, SyncsSeen
from harness.bench.timed_device import CudaBackend
from harness.clock.calibration import costs_for
from harness.clock.clock_trace import trace_bytes
from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
from harness.emulator.device_clock import DeviceClock
from harness.emulator.tensors.capacity import ValuesLimit
from harness.errors import UsageError
from harness.findings.finding_catalogue import with_findings
from harness.record.records import Overlap, Phase, SyncCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.audit.emulated.step_session import WatchedStep
    from harness.clock.clock_figures import ClockFigures
    from harness.emulator.tensors.op_events import AuditedPhase
    from harness.record.audit_report import AuditReport
    from harness.workload import Workload

_NS_PER_MS = 1e6
_PHASES: dict[Phase, tuple[AuditedPhase, ...]] = {
    "forward": ("data", "forward"),
    "backward": ("recompute", "backward"),
    "optimizer": ("optimizer",),
    "batch": ("data", "forward", "recompute", "backward", "optimizer"),
}


@contextmanager
def open_emulated(device: str) -> Iterator[EmulatedBackend]:
    """`emulated:GPU`, with real values while they are small and shapes only beyond that."""
    name = device.partition(":")[2]
    if not name:
        raise UsageError(f"{device!r} names no GPU; write `emulated:B200` or another.")
    gpu = find_gpu(name)
    clock = DeviceClock(costs_for(gpu))
    limit = ValuesLimit.for_mode("auto")
    with EmulatedDevice(gpu.key, values_limit=limit, clock=clock) as emulated:
        yield EmulatedBackend(emulated, clock)


class EmulatedBackend(CudaBackend):
    """A CUDA device whose clock is a model."""

    def __init__(self, device: EmulatedDevice, clock: DeviceClock) -> None:
        super().__init__(0, source="modelled", memory_kind="modelled")
        self._emulated = device
        self._virtual_clock = clock

    @property
    def has_values(self) -> bool:
        """Whether tensors hold data, so that arms can be compared."""
        return not self._emulated.shapes_only

    def sync_probe(self) -> SyncProbe:
        """Counts by the clock."""
        return ClockSyncProbe(self._emulated, self._virtual_clock)


class ClockSyncProbe:
    """Counts the syncs of one step of the selected arm, and what they cost by the clock."""

    def __init__(self, device: EmulatedDevice, clock: DeviceClock) -> None:
        self._gpu = device.gpu
        self._clock = clock
        self._session = StepSession(device, clock)

    def __call__(self, workload: Workload, arm: str) -> SyncsSeen:
        torch.cuda.synchronize()
        with self._session as session:
            session.begin()
            workload.forward()
            workload.backward()
            workload.optimizer_step()
            step = session.take()
        assert step.time is not None
        sites, figures = self._clock.sites, step.time.figures
        syncs = []
        for phase, parts in _PHASES.items():
            costs = [cost for cost in figures.waits if sites[cost.wait.site].phase in parts]
            syncs.append(
                SyncCount(
                    arm=arm,
                    phase=phase,
                    count=len(costs),
                    source="modelled",
                    method="emulated",
                    blocked_ms=sum(cost.blocked_ns for cost in costs) / _NS_PER_MS,
                    exposed_ms=sum(cost.exposed_ns for cost in costs) / _NS_PER_MS,
                )
            )
        overlap = Overlap(
            arm=arm,
            overlap=figures.overlap,
            copy_ms=figures.copy_ns / _NS_PER_MS,
            idle_ms=figures.idle_ns / _NS_PER_MS,
            source="modelled",
        )
        return SyncsSeen(
            tuple(syncs),
            (overlap,),
            portable(self._report(step, figures, arm)),
            trace_bytes(step.time.recording, device=self._gpu.name),
        )

    def _report(self, step: WatchedStep, figures: ClockFigures, arm: str) -> AuditReport:
        redundancy = self._session.new_redundancy()
        redundancy.add(step.forward)
        return with_findings(
            self._session.report(
                step.counts,
                target=arm,
                steps=1,
                redundant_groups=redundancy.groups(1),
                timeline=timeline_of([figures]),
            )
        )
