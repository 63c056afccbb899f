"""What a recording of the virtual clock says: busy, idle, overlap, and what each wait cost.

The definitions are those of the trace audit, worked out anew, so that the two can check each other:
a wait exposes the device's idle time from its own begin until the next launch after it reaches the
device, but never more than the time it blocked the host.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.clock.queue_timeline import Recording, WaitRow

Interval = tuple[int, int]


@dataclass(frozen=True)
class WaitCost:
    """One wait of the host."""

    wait: WaitRow
    exposed_ns: int
    """Device idle time that is its doing."""

    @property
    def blocked_ns(self) -> int:
        """Host time spent waiting."""
        return self.wait.end_ns - self.wait.start_ns


@dataclass(frozen=True)
class ClockFigures:
    """One recording in figures; times in nanoseconds. The span is from first to last work."""

    span_ns: int
    busy_ns: int
    copy_ns: int
    """Time in which at least one copy ran."""
    hidden_copy_ns: int
    """Part of it in which a kernel ran as well."""
    kernels_ns: tuple[int, ...]
    """Time of each kernel."""
    slow_host_ns: int
    """Idle time that no wait explains: no launch had reached the device yet."""
    waits: tuple[WaitCost, ...]

    @property
    def idle_ns(self) -> int:
        """Time of the span in which nothing ran."""
        return self.span_ns - self.busy_ns

    @property
    def overlap(self) -> float | None:
        """Share of copy time beside a kernel; `None` where nothing was copied."""
        return self.hidden_copy_ns / self.copy_ns if self.copy_ns else None


def figures_of(recording: Recording) -> ClockFigures:
    """Work out the figures of a finished recording."""
    rows = recording.rows
    busy = merge((row.start_ns, row.end_ns) for row in rows)
    kernels = merge((row.start_ns, row.end_ns) for row in rows if row.kind == "kernel")
    copies = merge((row.start_ns, row.end_ns) for row in rows if row.kind != "kernel")
    waits = tuple(_wait_costs(recording, busy))
    late_ns = _late_ns(recording, busy)
    return ClockFigures(
        span_ns=busy[-1][1] - busy[0][0] if busy else 0,
        busy_ns=_length(busy),
        copy_ns=_length(copies),
        hidden_copy_ns=_length(copies) + _length(kernels) - _length(merge([*copies, *kernels])),
        kernels_ns=tuple(row.end_ns - row.start_ns for row in rows if row.kind == "kernel"),
        # What a wait exposes ends where the launch after it reaches the device: it is part of this.
        slow_host_ns=max(late_ns - sum(cost.exposed_ns for cost in waits), 0),
        waits=waits,
    )


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > start:
            merged.append((start, end))
    return merged


def _length(intervals: Sequence[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _late_ns(recording: Recording, busy: Sequence[Interval]) -> int:
    """Idle time until the launch of the work that ends it reaches the device."""
    reaches: dict[int, int] = {}
    for row in recording.rows:
        reached = row.call_ns + recording.latency_ns
        reaches[row.start_ns] = min(reached, reaches.get(row.start_ns, reached))
    return sum(max(reaches[start] - end, 0) for (_, end), (start, _) in pairwise(busy))


class _Idle:
    """Idle time between the first and the last work, to be asked for any stretch."""

    def __init__(self, busy: Sequence[Interval]) -> None:
        gaps = [(end, start) for (_, end), (start, _) in pairwise(busy)]
        self._starts = [start for start, _ in gaps]
        self._ends = [end for _, end in gaps]
        self._before = [0, *accumulate(end - start for start, end in gaps)]

    def within(self, start: int, end: int) -> int:
        """Idle nanoseconds from `start` to `end`."""
        return max(self._until(end) - self._until(start), 0)

    def _until(self, time: int) -> int:
        index = bisect_right(self._starts, time)
        if index == 0:
            return 0
        return self._before[index] - max(self._ends[index - 1] - time, 0)


def _wait_costs(recording: Recording, busy: Sequence[Interval]) -> Iterable[WaitCost]:
    idle = _Idle(busy)
    rows = sorted(recording.rows, key=lambda row: row.call_ns)
    calls = [row.call_ns for row in rows]
    device_end = busy[-1][1] if busy else recording.end_ns
    taken_until = recording.start_ns
    waits = recording.waits
    for number, wait in enumerate(waits):
        following = bisect_left(calls, wait.end_ns)
        reaches = rows[following].start_ns if following < len(rows) else device_end
        until = max(reaches, wait.end_ns)
        if number + 1 < len(waits):
            # A host that waits again before it launched anything hands its window on.
            until = min(until, max(waits[number + 1].start_ns, wait.end_ns))
        start = max(wait.start_ns, taken_until)
        until = max(until, start)
        taken_until = until
        exposed = min(idle.within(start, until), wait.end_ns - wait.start_ns)
        yield WaitCost(wait, exposed)
