"""Clocks for one training step, and exactly what lies inside each timed region.

A step is timed from a drained device: nothing is queued when it starts, so no arm gains
from launches queued ahead by the arm before it. Five marks are set:

    start | forward | backward | optimizer | end

- `forward`: `Workload.forward`, from moving the batch to the device to the loss; the loss is not
  read.
- `backward`: `Workload.backward`, checkpoint recompute included.
- `optimizer`: `Workload.optimizer_step`, clearing the gradients included.
- `batch`: from the start to the moment all work of the step is done, on every stream. It is a
  measurement of its own, and on CUDA a little longer than the sum of the phases where copies on a
  side stream outlast the optimizer.

Choosing the arm and the batch, seeding, garbage collection and reading the clock lie outside.
On CUDA a mark is an event on the current stream, so the phases are the device's time, idle time in
which it waits for the host included. The host synchronises once, after the optimizer's mark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from harness.record.records import Phase
    from harness.workload import Workload

_NUM_MARKS = 5


class StepClock(Protocol):
    """Takes the marks of one step at a time."""

    def start(self) -> None:
        """Wait until the device is idle, then set mark 0."""
        ...

    def mark(self) -> None:
        """Set the next mark without waiting."""
        ...

    def finish(self) -> None:
        """Wait until all work of the step is done, then set the last mark."""
        ...

    def elapsed_ms(self, first: int, last: int) -> float:
        """Milliseconds between two marks of the finished step."""
        ...


def time_step(workload: Workload, clock: StepClock) -> dict[Phase, float]:
    """Run one step and return the milliseconds of each phase."""
    clock.start()
    workload.forward()
    clock.mark()
    workload.backward()
    clock.mark()
    workload.optimizer_step()
    clock.mark()
    clock.finish()
    return {
        "forward": clock.elapsed_ms(0, 1),
        "backward": clock.elapsed_ms(1, 2),
        "optimizer": clock.elapsed_ms(2, 3),
        "batch": clock.elapsed_ms(0, 4),
    }


class CpuClock:
    """`perf_counter_ns`: on a CPU an op is done when its call returns."""

    def __init__(self) -> None:
        self._marks_ns: list[int] = []

    def start(self) -> None:
        self._marks_ns.clear()
        self._marks_ns.append(time.perf_counter_ns())

    def mark(self) -> None:
        self._marks_ns.append(time.perf_counter_ns())

    def finish(self) -> None:
        self.mark()

    def elapsed_ms(self, first: int, last: int) -> float:
        return (self._marks_ns[last] - self._marks_ns[first]) / 1e6


class CudaClock:
    """CUDA events on the current stream of one device; they are made once and used again."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events = [_timing_event() for _ in range(_NUM_MARKS)]
        self._next = 0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._next = 0
        self.mark()

    def mark(self) -> None:
        self._events[self._next].record(torch.cuda.current_stream(self._device))
        self._next += 1

    def finish(self) -> None:
        # The whole device, not the stream: an arm must not hide work by leaving it on a side
        # stream past the end of its step.
        torch.cuda.synchronize(self._device)
        self.mark()
        self._events[self._next - 1].synchronize()

    def elapsed_ms(self, first: int, last: int) -> float:
        return float(self._events[first].elapsed_time(self._events[last]))


def _timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
