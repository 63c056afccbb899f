"""What `torch.cuda` answers on an emulated device with a clock, asked as user code asks it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from harness.clock.clock_figures import figures_of
from harness.clock.costs import catalogue_costs
from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
from harness.emulator.device_clock import DeviceClock

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 8192
PRODUCT_FLOPS = 2 * SIZE**3


@contextmanager
def device(gpu: str = "H100") -> Iterator[DeviceClock]:
    clock = DeviceClock(catalogue_costs(find_gpu(gpu)))
    with EmulatedDevice(gpu, shapes_only=True, clock=clock):
        yield clock


def square() -> torch.Tensor:
    return torch.empty(SIZE, SIZE, dtype=torch.bfloat16, device="cuda")


def timed_product(a: torch.Tensor) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    a @ a
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def test_a_large_product_takes_its_flops_at_the_stated_share_of_the_peak() -> None:
    with device() as clock:
        elapsed_ms = timed_product(square())
    share = clock.machine.costs.efficiency["gemm"]
    expected_ms = PRODUCT_FLOPS / (989e12 * share) * 1e3
    assert elapsed_ms == pytest.approx(expected_ms, rel=0.1)


def test_a_gpu_with_twice_the_rate_takes_about_half_the_time() -> None:
    times = {}
    for gpu in ("H100", "B200"):
        with device(gpu):
            times[gpu] = timed_product(square())
    assert times["H100"] / times["B200"] == pytest.approx(2250 / 989, rel=0.1)


def test_the_host_runs_ahead_until_it_synchronises() -> None:
    with device() as clock:
        a = square()
        torch.cuda.synchronize()
        began_ms = clock.now_ms()
        a @ a
        event = torch.cuda.Event()
        event.record()
        ahead_ms = clock.now_ms()
        assert not event.query()
        assert not torch.cuda.current_stream().query()
        torch.cuda.synchronize()
        assert event.query()
        assert torch.cuda.current_stream().query()
        assert ahead_ms - began_ms < 0.1 < clock.now_ms() - began_ms


def test_a_copy_on_a_side_stream_hides_behind_compute_and_one_on_the_compute_stream_does_not() -> (
    None
):
    def run(side: bool) -> float | None:
        with device() as clock:
            a = square()
            host = torch.empty(SIZE, SIZE, dtype=torch.bfloat16).pin_memory()
            stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
            torch.cuda.synchronize()
            clock.start_recording()
            for _ in range(8):
                a @ a
            with torch.cuda.stream(stream):
                copied = host.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(stream)
            copied + a
            return figures_of(clock.stop_recording()).overlap

    assert run(side=False) == 0.0
    overlap = run(side=True)
    assert overlap is not None
    assert overlap > 0.99


def test_pinned_copies_take_the_link_and_pageable_ones_block() -> None:
    num_bytes = 2 * SIZE * SIZE
    with device("B200") as clock:
        pinned = torch.empty(SIZE, SIZE, dtype=torch.bfloat16).pin_memory()
        pageable = torch.empty(SIZE, SIZE, dtype=torch.bfloat16)
        pinned.to("cuda", non_blocking=True)
        assert clock.now_ms() < 1
        torch.cuda.synchronize()
        assert clock.now_ms() == pytest.approx(num_bytes / 55.7e9 * 1e3, rel=0.05)
        began_ms = clock.now_ms()
        pageable.to("cuda")
        assert clock.now_ms() - began_ms > num_bytes / 12e9 * 1e3


def test_one_scalar_read_waits_for_what_was_queued() -> None:
    with device() as clock:
        a = square()
        torch.cuda.synchronize()
        clock.start_recording()
        (a @ a).sum().item()
        a @ a
        torch.cuda.synchronize()
        recording = clock.stop_recording()
        figures = figures_of(recording)
    read, end = figures.waits
    assert read.blocked_ns > 1e6
    assert 0 < read.exposed_ns < 1e5
    assert end.exposed_ns <= clock.machine.costs.queue.latency_ns


def test_events_must_be_recorded_before_they_are_compared() -> None:
    with device():
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        with pytest.raises(ValueError, match="recorded"):
            first.elapsed_time(second)


def test_recomputed_times_are_the_same_to_the_nanosecond() -> None:
    def run() -> float:
        with device("H200") as clock:
            a = square()
            for _ in range(5):
                a = a @ a
            torch.cuda.synchronize()
            return clock.now_ms()

    assert run() == run()


def test_memory_follows_allocations_over_time() -> None:
    with device() as clock:
        clock.start_recording()
        a = square()
        b = a + a
        del a
        c = b * 2
        torch.cuda.synchronize()
        peak = max(live for _, live in clock.stop_recording().memory)
        assert peak == torch.cuda.max_memory_allocated() == 2 * 2 * SIZE * SIZE
        del b, c
