"""A copy engine that runs copies when a schedule says so, to try interleavings without a clock."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(eq=False)
class ScheduledCopy:
    """A queued copy. It holds the device side weakly, as a real copy engine does."""

    lane: str
    run: Callable[[], None]
    after: Sequence[ScheduledCopy]
    host: int | None = None
    """Address of the host buffer."""
    done: bool = False


@dataclass
class ScheduledCopyEngine:
    """Two lanes, each in order. Between any two calls the schedule decides how many copies run.

    A copy runs at the latest when its mark is waited for. `delays` gives, call by call and then
    over again, how many queued copies run at that moment; an empty schedule runs each copy as late
    as it can. Reading a source that nobody kept raises.
    """

    delays: Sequence[int] = ()
    broken_waits: frozenset[str] = frozenset()
    """Lanes whose marks are not waited for: the mistake that tests must notice."""
    free_bytes: int | None = None
    allocation_limit: int | None = None
    """Most device bytes to hand out at once; over it, `torch.OutOfMemoryError`."""
    calls: list[str] = field(default_factory=list)
    copies: list[ScheduledCopy] = field(default_factory=list)
    _queued: deque[ScheduledCopy] = field(default_factory=deque)
    _num_calls: int = 0
    _device_memory: list[weakref.ref[torch.Tensor]] = field(default_factory=list)

    def allocate_host(self, num_bytes: int) -> torch.Tensor:
        return torch.full((num_bytes,), 0xEE, dtype=torch.uint8)

    def allocate_device(self, num_bytes: int) -> torch.Tensor:
        alive = sum(m.numel() for ref in self._device_memory if (m := ref()) is not None)
        if self.allocation_limit is not None and alive + num_bytes > self.allocation_limit:
            raise torch.OutOfMemoryError("out of memory, says the schedule")
        # A pattern that no input has, so that a read before the copy shows.
        memory = torch.full((num_bytes,), 0xEE, dtype=torch.uint8)
        self._device_memory.append(weakref.ref(memory))
        return memory

    def offload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[ScheduledCopy]
    ) -> ScheduledCopy:
        return self._queue("offload", _weak_copy(source, target), after, target)

    def reload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[ScheduledCopy]
    ) -> ScheduledCopy:
        return self._queue("reload", lambda: _write(target, source), after, source)

    def wait(self, mark: ScheduledCopy, *_reads: torch.Tensor) -> None:
        self.calls.append(f"wait-{mark.lane}")
        if mark.lane not in self.broken_waits:
            self._run(mark)
        self._advance()

    def compute_queue(self) -> None:
        return None

    def record(self, _queue: Any = None, /) -> ScheduledCopy:
        return ScheduledCopy("compute", run=lambda: None, after=(), done=True)

    def free_device_bytes(self) -> int | None:
        return self.free_bytes

    def close(self) -> None:
        while self._queued:
            self._run(self._queued[0])

    def _queue(
        self,
        lane: str,
        run: Callable[[], None],
        after: Sequence[ScheduledCopy],
        host: torch.Tensor,
    ) -> ScheduledCopy:
        self.calls.append(lane)
        copy = ScheduledCopy(lane, run, after, host.data_ptr())
        self.copies.append(copy)
        self._queued.append(copy)
        self._advance()
        return copy

    def _advance(self) -> None:
        if not self.delays:
            return
        due = self.delays[self._num_calls % len(self.delays)]
        self._num_calls += 1
        for _ in range(due):
            if self._queued:
                self._run(self._queued[0])

    def _run(self, copy: ScheduledCopy) -> None:
        """Run a copy, its predecessors in its lane and what it waits for."""
        if copy.done:
            return
        for earlier in [c for c in self._queued if c.lane == copy.lane]:
            if earlier is copy:
                break
            self._run(earlier)
        for mark in copy.after:
            self._run(mark)
        copy.done = True
        self._queued.remove(copy)
        copy.run()


def _weak_copy(source: torch.Tensor, target: torch.Tensor) -> Callable[[], None]:
    kept = weakref.ref(source)

    def run() -> None:
        alive = kept()
        if alive is None:
            raise AssertionError("the source of an offload was let go before the copy ran")
        _write(target, alive)

    return run


def _write(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)
