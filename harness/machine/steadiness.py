"""Whether the machine was steady while it measured, and how much energy a GPU used."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.machine.machine import gpu_sensors, num_usable_cores
from harness.record.records import Steadiness

if TYPE_CHECKING:
    from types import TracebackType

    from harness.machine.nvml import GpuReading, GpuSensors

READ_EVERY_S = 0.25
"""Seconds between readings, so rare that they do not disturb the thread that launches kernels."""

MAX_LOAD_BEFORE = 0.5
MAX_STEAL_SHARE = 0.02
MAX_OTHERS_SHARE = 0.10
MAX_CLOCK_SPREAD = 0.10


class SteadinessMonitor:
    """Watches the machine between `start` and `stop`, or as a context manager.

    On a CPU it only takes figures before and after. On a GPU a thread reads the sensors four times
    a second. Start it in the process that measures: its own CPU use does not count as others'.

        with SteadinessMonitor("cuda") as monitor:
            ...
        monitor.steadiness
    """

    def __init__(
        self,
        device: str,
        *,
        sensors: GpuSensors | None = None,
        proc_stat: Path = Path("/proc/stat"),
    ) -> None:
        """`sensors` are those of the device unless given."""
        self._sensors = sensors or gpu_sensors(device)
        self._proc_stat = proc_stat
        self._readings: list[GpuReading] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._load_before: float | None = None
        self._cpu_before: _CpuTimes | None = None
        self.steadiness = Steadiness()
        """What was measured; complete after `stop`."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start to watch the machine."""
        self._readings.clear()
        self._stopping.clear()
        self._load_before = _load_per_core()
        self._cpu_before = _CpuTimes.read(self._proc_stat)
        if self._sensors is not None:
            self._thread = threading.Thread(
                target=self._watch, args=(self._sensors,), name="gapless-steadiness", daemon=True
            )
            self._thread.start()

    def stop(self) -> Steadiness:
        """Stop watching and return what was measured."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        before, after = self._cpu_before, _CpuTimes.read(self._proc_stat)
        steal = others = None
        if before is not None and after is not None:
            steal, others = after.shares_since(before)
        self.steadiness = _summarise(
            self._readings,
            load_before=self._load_before,
            load_after=_load_per_core(),
            steal_share=steal,
            others_share=others,
        )
        return self.steadiness

    def _watch(self, sensors: GpuSensors) -> None:
        while True:
            self._readings.append(sensors.read())
            if self._stopping.wait(READ_EVERY_S):
                return


class EnergyMeter:
    """Energy a GPU uses between `start` and `stop`, from its driver's own counter.

    The counter steps about every 100 ms, so meter many steps at once and divide. Synchronise the
    device before both calls.
    """

    def __init__(self, sensors: GpuSensors | None) -> None:
        self._sensors = sensors
        self._before_j: float | None = None

    def start(self) -> None:
        """Take the counter's state."""
        self._before_j = self._sensors.energy_j() if self._sensors else None

    def stop(self) -> float | None:
        """Joules since `start`; `None` where the GPU has no such counter, or it was reset."""
        after_j = self._sensors.energy_j() if self._sensors else None
        if after_j is None or self._before_j is None or after_j < self._before_j:
            return None
        return after_j - self._before_j


@dataclass(frozen=True)
class _CpuTimes:
    """CPU seconds since boot over all cores, and of this process with its finished children."""

    total_s: float
    busy_s: float
    steal_s: float
    own_s: float

    @classmethod
    def read(cls, proc_stat: Path) -> _CpuTimes | None:
        """`None` where there is no `/proc/stat` (other systems), or not in the known form."""
        try:
            line = proc_stat.read_text(encoding="ascii").split("\n", 1)[0]
            ticks = [int(field) for field in line.removeprefix("cpu ").split()]
            # Guest time, the two fields after these, is already inside user and nice.
            user, nice, system, idle, iowait, irq, softirq, steal = ticks[:8]
        except (OSError, ValueError):
            return None
        tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        busy = user + nice + system + irq + softirq
        own = os.times()
        return cls(
            total_s=(busy + idle + iowait + steal) * tick_s,
            busy_s=busy * tick_s,
            steal_s=steal * tick_s,
            own_s=own.user + own.system + own.children_user + own.children_system,
        )

    def shares_since(self, before: _CpuTimes) -> tuple[float | None, float | None]:
        """Shares of all CPU time that the hypervisor gave away and that others used, 0 to 1."""
        total_s = self.total_s - before.total_s
        if total_s <= 0:
            return None, None
        others_s = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        steal = max(self.steal_s - before.steal_s, 0.0) / total_s
        # Ticks and our own clock are rounded apart, so the difference can fall below zero.
        return steal, max(others_s, 0.0) / total_s


def _load_per_core() -> float | None:
    """Load average of the last minute over usable cores; `None` on systems without one."""
    try:
        return os.getloadavg()[0] / num_usable_cores()
    except (AttributeError, OSError):
        return None


def _summarise(
    readings: list[GpuReading],
    *,
    load_before: float | None,
    load_after: float | None,
    steal_share: float | None,
    others_share: float | None,
) -> Steadiness:
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None and not r.idle]
    temperatures = [r.temperature_c for r in readings if r.temperature_c is not None]
    powers = [r.power_w for r in readings if r.power_w is not None]
    reasons = sorted({reason for r in readings for reason in r.throttle_reasons})

    warnings = []
    # The load average remembers our own build and the run before, so it only stands in where the
    # CPU time of others is not known.
    if others_share is None and load_before is not None and load_before > MAX_LOAD_BEFORE:
        warnings.append(
            f"The machine was busy before the run (load {load_before:.2f} per core): "
            f"stop other work and run again."
        )
    if steal_share is not None and steal_share > MAX_STEAL_SHARE:
        warnings.append(
            f"The hypervisor gave {steal_share:.1%} of the CPU time to other machines: "
            f"use a dedicated machine."
        )
    if others_share is not None and others_share > MAX_OTHERS_SHARE:
        warnings.append(
            f"Other processes used {others_share:.1%} of the CPU time during the run: "
            f"stop other work and run again."
        )
    if reasons:
        warnings.append(f"The GPU was throttled ({', '.join(reasons)}): cool it or lower its work.")
    if clocks and 1 - min(clocks) / max(clocks) > MAX_CLOCK_SPREAD:
        warnings.append(
            f"The GPU's clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz: "
            f"lock it with `nvidia-smi --lock-gpu-clocks`."
        )
    return Steadiness(
        load_before=load_before,
        load_after=load_after,
        cpu_steal_share=steal_share,
        cpu_others_share=others_share,
        sm_clock_min_mhz=min(clocks, default=None),
        sm_clock_max_mhz=max(clocks, default=None),
        temperature_max_c=max(temperatures, default=None),
        power_mean_w=sum(powers) / len(powers) if powers else None,
        throttle_reasons=tuple(reasons),
        warnings=tuple(warnings),
    )
