"""What a GPU's driver says while it works: clocks, heat, power, throttling and energy.

Everything else sees only `GpuSensors`. A figure the driver does not give is `None`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# Bits of NVML's clocks-event-reasons mask that mean "slower than asked for". Idle, and clocks the
# user has locked, are not among them.
_IDLE_BIT = 0x1
_THROTTLE_BITS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True)
class GpuReading:
    """One look at the sensors."""

    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    idle: bool = False
    """The driver says that nothing runs, so that the clock says nothing about the run."""


class GpuSensors(Protocol):
    """The sensors of one GPU. No method raises."""

    def read(self) -> GpuReading:
        """What the sensors show now."""
        ...

    def energy_j(self) -> float | None:
        """Energy used since the driver was loaded."""
        ...

    def driver(self) -> str | None:
        """Version of the driver."""
        ...

    def power_limit_w(self) -> float | None:
        """Power at which the driver starts to throttle."""
        ...


def open_sensors(uuid: str | None, index: int, nvml: Any = None) -> GpuSensors | None:
    """Sensors of the GPU with this UUID, or with this index where no UUID is known.

    `None` where NVML is not installed, finds no driver, or does not know the GPU. `nvml` is the
    `pynvml` module unless given.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        # Absent module, absent driver, driver of another version: all mean no sensors.
        return None
    sensors = _NvmlSensors(nvml, None)
    handle = sensors.ask(nvml.nvmlDeviceGetHandleByUUID, uuid) if uuid else None
    if handle is None:
        handle = sensors.ask(nvml.nvmlDeviceGetHandleByIndex, index)
    return None if handle is None else _NvmlSensors(nvml, handle)


@dataclass(frozen=True)
class _NvmlSensors:
    nvml: Any
    handle: Any

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What NVML answers, or `None`: each GPU and driver lacks some of its functions."""
        try:
            return function(*arguments)
        except (self.nvml.NVMLError, OSError):
            return None

    def read(self) -> GpuReading:
        nvml, handle = self.nvml, self.handle
        # The name before and after driver 535.
        reasons_of = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons_of = reasons_of or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        mask = self.ask(reasons_of, handle) or 0
        power_mw = self.ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            sm_clock_mhz=self.ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature_c=self.ask(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            power_w=None if power_mw is None else power_mw / 1e3,
            throttle_reasons=tuple(name for bit, name in _THROTTLE_BITS.items() if mask & bit),
            idle=bool(mask & _IDLE_BIT),
        )

    def energy_j(self) -> float | None:
        energy_mj = self.ask(self.nvml.nvmlDeviceGetTotalEnergyConsumption, self.handle)
        return None if energy_mj is None else energy_mj / 1e3

    def driver(self) -> str | None:
        version = self.ask(self.nvml.nvmlSystemGetDriverVersion)
        return None if version is None else str(version)

    def power_limit_w(self) -> float | None:
        limit_mw = self.ask(self.nvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        return None if limit_mw is None else limit_mw / 1e3
