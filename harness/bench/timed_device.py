"""What the bench asks of a device. Everything that differs between devices is behind `Backend`.

A CPU, a CUDA device and an emulated one are each a `Backend`; the code that schedules, times and
compares is the same for all.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import torch

from harness.bench.memory import (
    CudaAllocatorPeak,
    MemoryKind,
    MemoryProbe,
    RssPeak,
    TensorBytesPeak,
)
from harness.bench.phase_clock import CpuClock, CudaClock, StepClock
from harness.bench.plan import BenchPlan, import_object
from harness.bench.profile import CudaSyncProbe
from harness.errors import UsageError
from harness.machine.machine import gpu_sensors
from harness.machine.steadiness import EnergyMeter

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from harness.bench.sync_probe import SyncProbe
    from harness.record.records import Source

BACKENDS = {
    "cpu": "harness.bench.timed_device:open_cpu",
    "cuda": "harness.bench.timed_device:open_cuda",
    "emulated": "harness.bench.emulated_device:open_emulated",
}
"""Scheme of the device's name -> what opens it."""


class Backend(Protocol):
    """A device to measure on, or one whose clock is a model."""

    @property
    def source(self) -> Source:
        """`measured`, or `modelled` where the clock is a model."""
        ...

    @property
    def device_type(self) -> str:
        """Type of the workload's `device`, such as `cuda`."""
        ...

    @property
    def has_values(self) -> bool:
        """Whether tensors hold data; without it arms cannot be compared for parity."""
        ...

    def clock(self) -> StepClock:
        """What times the phases of a step."""
        ...

    def memory_probes(self) -> tuple[MemoryProbe, ...]:
        """The ways to measure peak memory here; empty where there is none."""
        ...

    def sync_probe(self) -> SyncProbe | None:
        """What counts syncs; `None` on a CPU, which has none."""
        ...

    def energy_meter(self) -> EnergyMeter | None:
        """What measures energy; `None` where the device has no counter."""
        ...


def open_backend(plan: BenchPlan) -> AbstractContextManager[Backend]:
    """The backend of a plan, active while the workload is built and run.

    Raises `UsageError` for an unknown device, or one that this machine does not have.
    """
    scheme = plan.device.partition(":")[0]
    path = plan.backend or BACKENDS.get(scheme)
    if path is None:
        raise UsageError(f"No device {plan.device!r}; choose one of {', '.join(sorted(BACKENDS))}.")
    opened: AbstractContextManager[Backend] = import_object(path)(plan.device)
    return opened


def open_cpu(device: str) -> AbstractContextManager[Backend]:
    """The CPU; takes no index."""
    if device != "cpu":
        raise UsageError(f"There is one CPU device, `cpu`, not {device!r}.")
    return nullcontext(CpuBackend())


def open_cuda(device: str) -> AbstractContextManager[Backend]:
    """`cuda` or `cuda:N`, which becomes the current device."""
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        missing = "no GPU is visible" if built else "this torch is a CPU build"
        raise UsageError(f"{device} cannot be used: {missing}; choose `cpu`.")
    index = device.partition(":")[2] or "0"
    if not index.isdecimal() or int(index) >= torch.cuda.device_count():
        raise UsageError(
            f"There is no {device!r}: {torch.cuda.device_count()} CUDA devices are visible."
        )
    torch.cuda.set_device(int(index))
    return nullcontext(CudaBackend(int(index)))


class CpuBackend:
    """This machine's processor."""

    source: Source = "measured"
    device_type = "cpu"
    has_values = True

    def clock(self) -> StepClock:
        return CpuClock()

    def memory_probes(self) -> tuple[MemoryProbe, ...]:
        rss: tuple[MemoryProbe, ...] = (RssPeak(),) if RssPeak.available() else ()
        return (*rss, TensorBytesPeak())

    def sync_probe(self) -> SyncProbe | None:
        return None

    def energy_meter(self) -> EnergyMeter | None:
        # NVML knows GPUs only, and a processor's own counter needs a privileged reader.
        return None


class CudaBackend:
    """One CUDA device, or one that answers the same calls from a model."""

    device_type = "cuda"

    def __init__(
        self,
        index: int,
        *,
        source: Source = "measured",
        memory_kind: MemoryKind = "cuda-allocator",
    ) -> None:
        self._device = torch.device("cuda", index)
        self._memory_kind: MemoryKind = memory_kind
        self.source: Source = source

    @property
    def has_values(self) -> bool:
        return True

    def clock(self) -> StepClock:
        return CudaClock(self._device)

    def memory_probes(self) -> tuple[MemoryProbe, ...]:
        return (CudaAllocatorPeak(self._device, self._memory_kind),)

    def sync_probe(self) -> SyncProbe | None:
        return CudaSyncProbe(self._device, self.source)

    def energy_meter(self) -> EnergyMeter | None:
        if self.source != "measured":
            return None
        sensors = gpu_sensors(str(self._device))
        return None if sensors is None else EnergyMeter(sensors)
