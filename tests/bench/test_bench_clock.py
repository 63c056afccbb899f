"""Clocks: what lies between the marks, and how often the host waits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.bench.phase_clock import CpuClock, CudaClock, time_step
from harness.bench.timed_device import CpuBackend, CudaBackend, open_backend
from harness.errors import UsageError
from tests.toys.bench_toys import toy_plan


class RecordingWorkload:
    """Writes down when each part runs."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def forward(self) -> None:
        self.log.append("forward")

    def backward(self) -> None:
        self.log.append("backward")

    def optimizer_step(self) -> None:
        self.log.append("optimizer")


class FakeCuda:
    """A device that is always a known time behind the host: enough of `torch.cuda` for a clock."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.device_ms = 0.0

    def synchronize(self, device: torch.device) -> None:
        self.log.append("synchronize")
        # What a side stream still had to do.
        self.device_ms += 100.0

    def current_stream(self, device: torch.device) -> str:
        return f"stream of {device}"

    def make_event(self, enable_timing: bool) -> Any:
        assert enable_timing
        cuda = self

        class Event:
            def record(self, stream: str) -> None:
                assert stream == "stream of cuda:0"
                cuda.log.append("mark")
                cuda.device_ms += 1.0
                self.at_ms = cuda.device_ms

            def synchronize(self) -> None:
                cuda.log.append("event")

            def elapsed_time(self, end: Any) -> float:
                return end.at_ms - self.at_ms

        return Event()


def test_cuda_marks_surround_the_phases_and_the_host_waits_only_outside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    fake = FakeCuda(log)
    monkeypatch.setattr(torch.cuda, "synchronize", fake.synchronize)
    monkeypatch.setattr(torch.cuda, "current_stream", fake.current_stream)
    monkeypatch.setattr(torch.cuda, "Event", fake.make_event)
    clock = CudaClock(torch.device("cuda", 0))
    for _ in range(2):
        log.clear()
        times = time_step(RecordingWorkload(log), clock)  # type: ignore[arg-type]
        assert log == [
            "synchronize", "mark", "forward", "mark", "backward", "mark", "optimizer", "mark",
            "synchronize", "mark", "event",
        ]  # fmt: skip
        # The batch holds what the side stream did after the optimizer; no phase does.
        assert times == {"forward": 1, "backward": 1, "optimizer": 1, "batch": 104}


def test_cpu_phases_are_differences_of_one_set_of_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([1_000_000, 3_000_000, 10_000_000, 11_000_000, 11_500_000])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(readings))
    times = time_step(RecordingWorkload([]), CpuClock())  # type: ignore[arg-type]
    assert times == {"forward": 2.0, "backward": 7.0, "optimizer": 1.0, "batch": 10.5}


def test_the_device_name_chooses_the_backend() -> None:
    with open_backend(toy_plan(device="cpu", backend=None)) as backend:
        assert isinstance(backend, CpuBackend)
        assert backend.sync_probe() is None
        assert backend.energy_meter() is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"cuda:1 cannot be used: .*; choose `cpu`"):
        open_backend(toy_plan(device="cuda:1", backend=None))


def test_a_modelled_cuda_device_says_so_and_has_no_energy() -> None:
    backend = CudaBackend(0, source="modelled", memory_kind="modelled")
    assert backend.source == "modelled"
    assert backend.memory_probes()[0].kind == "modelled"
    assert backend.energy_meter() is None
