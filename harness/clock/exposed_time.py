"""Exposed time: the device idle that would not have been there without a sync.

A host that waits while the device works has lost nothing yet. The loss begins when the queue runs
dry and ends when the first launch made after the sync reaches the device. Of that idle time at
most the blocked time is due to the sync: had the host not waited, all it did afterwards would
have come that much earlier and no more, and what remains would have been idle anyway (host work,
data loading). Windows of different syncs do not overlap, so the sum never exceeds the idle time.

Traces and the virtual clock share this arithmetic. Times are int64 nanoseconds; arrays of syncs
and of launches are in time order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.clock.intervals import Int64, Intervals

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class HostSyncs:
    """When the host waited: one entry for each sync."""

    start: Int64
    end: Int64
    thread: npt.NDArray[np.integer]
    """Equal for syncs of one host thread."""

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: npt.NDArray[np.generic]) -> HostSyncs:
        """The syncs that a mask, or an array of indices, chooses."""
        return HostSyncs(self.start[chosen], self.end[chosen], self.thread[chosen])


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Calls of one process that queued work on one device."""

    call: Int64
    arrival: Int64
    """Start of the first work of the call on the device."""
    work: Int64
    """Device time of all work of the call."""


@dataclass(frozen=True, slots=True)
class Windows:
    """One entry for each sync: when idle time may be due to it."""

    low: Int64
    high: Int64
    work_after: Int64
    """Device time of the work queued between this sync and the next: what could fill the idle."""


def find_windows(syncs: HostSyncs, launches: LaunchTimes, device_end: int) -> Windows:
    """Windows of the syncs of one process on one device, whose last work ends at `device_end`."""
    start, end = syncs.start, syncs.end
    following = np.searchsorted(launches.call, end, side="left")
    arrivals = np.concatenate((launches.arrival, [device_end]))
    high = np.maximum(arrivals[following], end)
    # A thread that waits again before anything was launched hands its window on.
    next_start = np.maximum(np.concatenate((start[1:], [device_end])), end)
    again = np.zeros(len(syncs), dtype=np.bool_)
    again[:-1] = syncs.thread[1:] == syncs.thread[:-1]
    high = np.where(again, np.minimum(high, next_start), high)
    # While this thread waited another one may have fed the device: then the idle time up to that
    # launch has another reason. The sync's own copy starts with the sync and does not count.
    last = np.maximum(following - 1, 0)
    fed = (following > 0) & (np.append(launches.call, 0)[last] > start)
    low = np.where(fed, np.minimum(np.maximum(arrivals[last], start), high), start)
    work = np.concatenate(([0], np.cumsum(launches.work)))
    until = np.maximum(np.searchsorted(launches.call, next_start, side="left"), following)
    return Windows(low, high, work[until] - work[following])


@dataclass(frozen=True, slots=True)
class ExposedTime:
    """One entry for each sync."""

    low: Int64
    """Where its window begins, without what earlier syncs have taken."""
    idle: Int64
    """Idle time in its window."""
    exposed: Int64
    """Part of it that is due to the sync."""

    def moments(self, idle: Intervals) -> Intervals:
        """The exposed time itself, of the `idle` time that it was found in."""
        return Intervals.union_of(self.low, idle.time_after(self.low, self.exposed)) & idle


def expose(syncs: HostSyncs, low: Int64, high: Int64, idle: Intervals) -> ExposedTime:
    """What all syncs of one device expose of its `idle` time, given their windows."""
    if len(syncs):
        # What an earlier sync has taken is not counted again.
        taken = np.maximum.accumulate(high)
        low = np.concatenate((low[:1], np.maximum(low[1:], taken[:-1])))
    found = idle.covered_within(low, np.maximum(high, low))
    return ExposedTime(low, found, np.minimum(found, syncs.end - syncs.start))
