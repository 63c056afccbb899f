"""What a machine is, when two compare, and what is said when one did not hold still."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.errors import UsageError
from harness.machine.machine import (
    clock_resolution_ns,
    comparable,
    describe_machine,
    gpu_sensors,
    noise_floor,
    num_usable_cores,
)
from harness.machine.nvml import GpuReading, open_sensors
from harness.machine.steadiness import EnergyMeter, SteadinessMonitor
from harness.record.records import Gpu, Machine

H200 = Gpu(name="NVIDIA H200", memory_bytes=141 << 30, driver="570.1", power_limit_w=700.0)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe_machine("cpu")


def test_the_cpu_machine_is_described(machine: Machine) -> None:
    assert (machine.device, machine.gpus) == ("cpu", ())
    assert machine.num_cpu_cores == num_usable_cores() >= 1
    assert machine.memory_bytes > 1 << 28
    assert machine.cpu_model
    assert len(machine.fingerprint) == 64
    assert describe_machine("cpu") == machine


def test_an_emulated_device_is_named_and_has_no_gpu(machine: Machine) -> None:
    emulated = describe_machine("emulated:B200")
    assert (emulated.device, emulated.gpus) == ("emulated-b200", ())
    assert emulated.fingerprint != machine.fingerprint


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "", "cuda:x", "emulated:", "cpu\n"])
def test_a_device_that_is_not_here_is_a_sentence(device: str) -> None:
    with pytest.raises(UsageError, match="device"):
        describe_machine(device)


def test_psutil_is_not_needed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    without = describe_machine("cpu")
    assert without.memory_bytes == pytest.approx(machine.memory_bytes, rel=0.01)


def test_fingerprint_leaves_out_host_and_own_version(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    elsewhere = describe_machine("cpu")
    assert elsewhere.hostname == "elsewhere"
    assert elsewhere.fingerprint == machine.fingerprint
    assert comparable(machine, msgspec.structs.replace(elsewhere, gapless="99")) == ()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"torch": "2.11.0"}, "torch: 2.11.0 against"),
        ({"num_threads": 97}, "threads: 97 against"),
        ({"governor": "powersave"}, "governor: powersave against"),
        ({"memory_bytes": 3 << 40}, "memory: 3072 GiB against"),
        ({"gpus": (H200,)}, "GPU: NVIDIA H200 141 GiB against unknown"),
    ],
)
def test_each_difference_is_named(
    machine: Machine, change: dict[str, Any], difference: str
) -> None:
    other = msgspec.structs.replace(machine, **change)
    assert comparable(other, machine)[0].startswith(difference)
    assert len(comparable(other, machine)) == len(comparable(machine, other)) >= 1


def test_a_driver_change_does_not_compare(machine: Machine) -> None:
    ours = msgspec.structs.replace(machine, gpus=(H200,))
    theirs = msgspec.structs.replace(machine, gpus=(msgspec.structs.replace(H200, driver="580.2"),))
    assert comparable(ours, theirs) == ("GPU driver: 570.1 against 580.2",)


def test_the_clock_steps_and_the_noise_floor_is_a_comparison() -> None:
    assert 0 < clock_resolution_ns() < 1_000_000
    found = noise_floor(num_blocks=7)
    assert found.num_blocks == 7
    assert found.low <= found.speedup <= found.high
    assert found.minimum_detectable is not None
    with pytest.raises(ValueError, match="at least 1"):
        noise_floor(num_blocks=0)


# GPU sensors behind a fake NVML.


class FakeNvmlError(Exception):
    pass


def fake_nvml(**overrides: Any) -> SimpleNamespace:
    functions: dict[str, Any] = {
        "NVMLError": FakeNvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle of {index}",
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x04 | 0x40,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetTemperature": lambda handle, kind: 64,
        "nvmlDeviceGetPowerUsage": lambda handle: 512_000,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 7_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
    }
    return SimpleNamespace(**{**functions, **overrides})


def refuses(*arguments: object) -> None:
    raise FakeNvmlError("not supported")


def test_sensors_are_read_in_our_units() -> None:
    sensors = open_sensors("GPU-1", 0, fake_nvml())
    assert sensors is not None
    reading = sensors.read()
    assert (reading.sm_clock_mhz, reading.temperature_c, reading.power_w) == (1980, 64, 512.0)
    assert reading.throttle_reasons == ("software power cap", "hardware thermal slowdown")
    assert not reading.idle
    assert sensors.energy_j() == 7.5
    assert (sensors.power_limit_w(), sensors.driver()) == (700.0, "570.1")


def test_the_uuid_names_the_gpu_and_the_index_is_the_fallback() -> None:
    asked: list[str] = []

    def temperature(handle: str, kind: int) -> int:
        asked.append(handle)
        return 1

    for nvml in (
        fake_nvml(nvmlDeviceGetTemperature=temperature),
        fake_nvml(nvmlDeviceGetTemperature=temperature, nvmlDeviceGetHandleByUUID=refuses),
    ):
        sensors = open_sensors("GPU-1", 3, nvml)
        assert sensors is not None
        sensors.read()
    assert asked == ["handle of GPU-1", "handle of 3"]


def test_an_older_driver_names_its_throttling_otherwise() -> None:
    nvml = fake_nvml(nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x08 | 0x01)
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    sensors = open_sensors(None, 0, nvml)
    assert sensors is not None
    assert sensors.read().throttle_reasons == ("hardware slowdown",)
    assert sensors.read().idle


def test_what_the_driver_refuses_is_unknown_and_not_zero() -> None:
    refusing = {name: refuses for name in vars(fake_nvml()) if name.startswith("nvmlDeviceGet")}
    refusing["nvmlDeviceGetHandleByIndex"] = lambda index: "handle"
    sensors = open_sensors("GPU-1", 0, fake_nvml(**refusing))
    assert sensors is not None
    assert sensors.read() == GpuReading()
    assert (sensors.energy_j(), sensors.power_limit_w()) == (None, None)
    with SteadinessMonitor("cuda", sensors=sensors) as monitor:
        pass
    assert monitor.steadiness.sm_clock_min_mhz is None
    assert monitor.steadiness.power_mean_w is None


@pytest.mark.parametrize(
    "nvml",
    [
        fake_nvml(nvmlInit=refuses),
        fake_nvml(nvmlDeviceGetHandleByIndex=refuses, nvmlDeviceGetHandleByUUID=refuses),
    ],
)
def test_no_driver_and_no_such_gpu_mean_no_sensors(nvml: SimpleNamespace) -> None:
    assert open_sensors("GPU-1", 0, nvml) is None


def test_no_pynvml_means_no_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_sensors(None, 0) is None
    assert gpu_sensors("cpu") is None


# Steadiness.


class FakeSensors:
    """Hands out its readings one by one, then the last one again."""

    def __init__(self, readings: list[GpuReading], energies_j: list[float | None]) -> None:
        self.readings, self.energies_j = readings, energies_j
        self.all_read = threading.Event()

    def read(self) -> GpuReading:
        if len(self.readings) == 1:
            self.all_read.set()
            return self.readings[0]
        return self.readings.pop(0)

    def energy_j(self) -> float | None:
        return self.energies_j.pop(0)

    def driver(self) -> str | None:
        return None

    def power_limit_w(self) -> float | None:
        return None


def proc_stat(path: Path, *, user: int, idle: int, steal: int) -> None:
    path.write_text(f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n")


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def test_a_calm_machine_gets_no_warning(calm: None, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    proc_stat(stat, user=0, idle=0, steal=0)
    monitor = SteadinessMonitor("cpu", proc_stat=stat)
    threads = threading.active_count()
    monitor.start()
    assert threading.active_count() == threads
    proc_stat(stat, user=5, idle=94, steal=1)
    found = monitor.stop()
    assert found == monitor.steadiness
    assert found.warnings == ()
    assert found.cpu_steal_share == pytest.approx(0.01)
    assert found.load_before == 0.0


def test_steal_and_other_work_are_told_apart(calm: None, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    proc_stat(stat, user=0, idle=0, steal=0)
    with SteadinessMonitor("cpu", proc_stat=stat) as monitor:
        proc_stat(stat, user=500_000, idle=400_000, steal=100_000)
    found = monitor.steadiness
    assert found.cpu_steal_share == pytest.approx(0.1)
    assert found.cpu_others_share == pytest.approx(0.5, abs=0.01)
    steal, others = found.warnings
    assert "10.0% of the CPU time to other machines" in steal
    assert "Other processes used 50.0%" in others


def test_our_own_work_is_not_others_work(calm: None, tmp_path: Path) -> None:
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    proc_stat(stat, user=0, idle=0, steal=0)
    before = os.times()
    with SteadinessMonitor("cpu", proc_stat=stat) as monitor:
        while (used_s := os.times().user + os.times().system - before.user - before.system) < 0.1:
            sum(range(1000))
        used = round(used_s * ticks_per_s)
        proc_stat(stat, user=used, idle=used, steal=0)
    share = monitor.steadiness.cpu_others_share
    assert share is not None
    assert share < 0.1
    assert monitor.steadiness.warnings == ()


@pytest.mark.parametrize("content", [None, "", "cpu a b", "cpu 1 2"])
def test_an_unknown_proc_stat_is_unknown(calm: None, tmp_path: Path, content: str | None) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content)
    with SteadinessMonitor("cpu", proc_stat=stat) as monitor:
        pass
    assert monitor.steadiness.cpu_steal_share is None
    assert monitor.steadiness.cpu_others_share is None


def test_a_busy_machine_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0 * num_usable_cores(), 0.0, 0.0))
    with SteadinessMonitor("cpu", proc_stat=Path("/nonexistent")) as monitor:
        pass
    assert monitor.steadiness.load_before == 3.0
    assert "load 3.00 per core" in monitor.steadiness.warnings[0]


def test_a_load_of_our_own_is_no_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The load average of a minute holds our own build; what others used is known exactly."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.8 * num_usable_cores(), 0.0, 0.0))
    stat = tmp_path / "stat"
    proc_stat(stat, user=0, idle=0, steal=0)
    with SteadinessMonitor("cpu", proc_stat=stat) as monitor:
        proc_stat(stat, user=1_000, idle=99_000, steal=0)
    assert monitor.steadiness.load_before == 0.8
    assert monitor.steadiness.warnings == ()


def test_gpu_readings_are_summed_up(calm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.machine.steadiness.READ_EVERY_S", 0.001)
    cap = ("software power cap",)
    readings = [
        GpuReading(sm_clock_mhz=210, temperature_c=30, power_w=80, idle=True),
        GpuReading(sm_clock_mhz=1980, temperature_c=60, power_w=600),
        GpuReading(sm_clock_mhz=1500, temperature_c=71, power_w=700, throttle_reasons=cap),
        GpuReading(),
    ]
    sensors = FakeSensors(readings, [])
    threads = threading.active_count()
    with SteadinessMonitor("cuda", sensors=sensors, proc_stat=Path("/nonexistent")) as monitor:
        assert sensors.all_read.wait(30)
    assert threading.active_count() == threads
    found = monitor.steadiness
    assert (found.sm_clock_min_mhz, found.sm_clock_max_mhz) == (1500, 1980)
    assert (found.temperature_max_c, found.power_mean_w) == (71, 460)
    assert found.throttle_reasons == cap
    throttled, clock = found.warnings
    assert "throttled (software power cap)" in throttled
    assert "between 1500 and 1980 MHz" in clock


def test_the_watch_ends_when_the_run_raises() -> None:
    sensors = FakeSensors([GpuReading()], [])
    threads = threading.active_count()
    with (
        pytest.raises(RuntimeError, match="out of memory"),
        SteadinessMonitor("cuda", sensors=sensors),
    ):
        raise RuntimeError("out of memory")
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("energies_j", "expected"),
    [([10.0, 12.5], 2.5), ([None, 12.5], None), ([10.0, None], None), ([10.0, 1.0], None)],
)
def test_energy_is_a_difference_or_unknown(
    energies_j: list[float | None], expected: float | None
) -> None:
    meter = EnergyMeter(FakeSensors([GpuReading()], energies_j))
    meter.start()
    assert meter.stop() == expected


def test_no_sensors_no_energy() -> None:
    meter = EnergyMeter(None)
    meter.start()
    assert meter.stop() is None


@pytest.mark.gpu
def test_a_real_gpu_answers() -> None:
    found = describe_machine("cuda")
    assert found.gpus[0].memory_bytes
    with SteadinessMonitor("cuda") as monitor:
        import torch

        torch.ones(4096, 4096, device="cuda").matmul(torch.ones(4096, 4096, device="cuda"))
        torch.cuda.synchronize()
    sensors = gpu_sensors("cuda")
    if sensors is not None and sensors.read().temperature_c is not None:
        assert monitor.steadiness.temperature_max_c
