"""What a recording of the virtual clock says: busy, idle, overlap, and what each sync cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.clock.exposed_time import HostSyncs, LaunchTimes, expose, find_windows
from harness.clock.intervals import Int64, Intervals

if TYPE_CHECKING:
    from harness.clock.queue_timeline import Recording, WaitRow


@dataclass(frozen=True)
class WaitCost:
    """One sync."""

    wait: WaitRow
    exposed_ns: int
    """Device idle time that it caused."""

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
    """Idle time that no sync explains: no launch had reached the device yet."""
    waits: tuple[WaitCost, ...]

    @property
    def idle_ns(self) -> int:
        """Time of the span in which nothing ran."""
        return self.span_ns - self.busy_ns

    @property
    def overlap(self) -> float | None:
        """Share of copy time beside a kernel; `None` where nothing was copied."""
        return self.hidden_copy_ns / self.copy_ns if self.copy_ns else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """The device rows of a recording as columns, in the order they were queued."""

    start: Int64
    end: Int64
    call: Int64


def figures_of(recording: Recording) -> ClockFigures:
    """Work out the figures of a finished recording."""
    rows = _rows(recording)
    is_kernel = np.array([row.kind == "kernel" for row in recording.rows], dtype=np.bool_)
    busy = Intervals.union_of(rows.start, rows.end)
    kernels = Intervals.union_of(rows.start[is_kernel], rows.end[is_kernel])
    copies = Intervals.union_of(rows.start[~is_kernel], rows.end[~is_kernel])
    idle = busy.gaps()
    waits = _wait_costs(recording, rows, busy, idle)
    late_ns = _late_ns(rows, idle, recording.latency_ns)
    return ClockFigures(
        span_ns=busy.span,
        busy_ns=busy.length,
        copy_ns=copies.length,
        hidden_copy_ns=(copies & kernels).length,
        kernels_ns=tuple((rows.end - rows.start)[is_kernel].tolist()),
        # What a wait exposes ends where the launch after it reaches the device: it is part of this.
        slow_host_ns=max(late_ns - sum(cost.exposed_ns for cost in waits), 0),
        waits=waits,
    )


def _rows(recording: Recording) -> _Rows:
    columns = list(zip(*recording.rows, strict=True)) or [()] * 6
    start, end, call = (np.array(columns[number], dtype=np.int64) for number in (0, 1, 5))
    return _Rows(start, end, call)


def _late_ns(rows: _Rows, idle: Intervals, latency_ns: int) -> int:
    """Idle time until the launch of the work that ends it reaches the device."""
    order = np.lexsort((rows.call, rows.start))
    first = order[np.searchsorted(rows.start, idle.end, side="left", sorter=order)]
    reaches = rows.call[first] + latency_ns
    return int(np.maximum(reaches - idle.start, 0).sum())


def _wait_costs(
    recording: Recording, rows: _Rows, busy: Intervals, idle: Intervals
) -> tuple[WaitCost, ...]:
    waits = recording.waits
    start, end = (np.array([wait[number] for wait in waits], dtype=np.int64) for number in (0, 1))
    syncs = HostSyncs(start, end, np.zeros(len(waits), dtype=np.int64))
    order = np.argsort(rows.call, kind="stable")
    launches = LaunchTimes(rows.call[order], rows.start[order], (rows.end - rows.start)[order])
    device_end = int(busy.end[-1]) if len(busy) else recording.end_ns
    windows = find_windows(syncs, launches, device_end)
    exposed = expose(syncs, windows.low, windows.high, idle).exposed.tolist()
    return tuple(WaitCost(wait, cost) for wait, cost in zip(waits, exposed, strict=True))
