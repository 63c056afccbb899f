"""The device over time: busy, idle, overlap, queue depth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.columns import CUDA_SYNC, KERNEL, MEMCPY, Bool, Interner
from harness.audit.trace.links import NO_CALL
from harness.clock.intervals import Int64, Intervals

if TYPE_CHECKING:
    from harness.audit.trace.columns import Trace

_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|nvshmem|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter"
    r"|all_?to_?all|deep_ep|symm_mem",
    re.IGNORECASE,
)
_MAX_DEVICES = 256
_HOST_COLLECTIVE = re.compile(r"nccl:|c10d::|record_param_comms|_c10d_functional::")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Time sets of one device, or of all together."""

    busy: Intervals
    """Kernels, copies and memsets."""
    compute: Intervals
    """Kernels that are no communication."""
    communication: Intervals
    copies: Intervals

    @property
    def start(self) -> int:
        """First moment of work."""
        return int(self.busy.start[0])

    @property
    def end(self) -> int:
        """Last moment of work."""
        return int(self.busy.end[-1])

    @property
    def span(self) -> int:
        """Nanoseconds from first to last moment of work."""
        return self.busy.span

    @property
    def idle(self) -> Intervals:
        """Time of the span in which nothing ran."""
        return self.busy.gaps()

    @property
    def overlap(self) -> float | None:
        """Share of copy time with a compute kernel running; `None` where nothing was copied."""
        return _share((self.copies & self.compute).length, self.copies.length)

    @property
    def communication_hidden(self) -> float | None:
        """Share of communication time with a compute kernel running."""
        return _share((self.communication & self.compute).length, self.communication.length)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def communication_names(trace: Trace) -> Bool:
    """For each name of the trace whether a kernel of that name communicates."""
    return np.array([_COMMUNICATION.search(name) is not None for name in trace.names], np.bool_)


def device_numbers(trace: Trace) -> tuple[list[str], Int64]:
    """Names of the devices with work, and the number of the device of each device row."""
    devices: Interner[int | str] = Interner()
    of_stream = np.array([devices[device] for device, _ in trace.streams], dtype=np.int64)
    if not len(trace.device):
        return [], np.zeros(0, dtype=np.int64)
    if len(devices) > _MAX_DEVICES:
        # No machine has this many; taking them as one keeps the time of a hostile file bounded.
        return ["all"], np.zeros(len(trace.device), dtype=np.int64)
    return [str(device) for device in devices], of_stream[trace.device.stream]


def device_time(trace: Trace, chosen: Bool | None = None) -> DeviceTime | None:
    """Time sets of the chosen device rows, of all where none are; `None` without work."""
    device = trace.device
    work = device.kind != CUDA_SYNC
    if chosen is not None:
        work = work & chosen
    communicates = communication_names(trace)[device.name] if len(device) else work
    kernels = work & (device.kind == KERNEL)
    busy = _set(trace, work)
    if not len(busy):
        return None
    return DeviceTime(
        busy=busy,
        compute=_set(trace, kernels & ~communicates),
        communication=_set(trace, kernels & communicates),
        copies=_set(trace, work & (device.kind == MEMCPY)),
    )


def _set(trace: Trace, chosen: Bool) -> Intervals:
    return Intervals.union_of(trace.device.start[chosen], trace.device.end[chosen])


@dataclass(frozen=True, slots=True)
class QueueSteps:
    """Depth of the launch queue as a step function."""

    time: Int64
    depth: Int64
    """From `time[i]` to `time[i + 1]`."""

    def queued(self) -> Intervals:
        """Time in which something was queued and had not started."""
        if len(self.time) < 2:
            return Intervals.empty()
        waiting = self.depth[:-1] > 0
        return Intervals.union_of(self.time[:-1][waiting], self.time[1:][waiting])


def queue_steps(trace: Trace, launcher: Int64, chosen: Bool) -> QueueSteps:
    """Launches made (the call has returned) whose device row has not started, over time."""
    rows = np.flatnonzero(chosen & (launcher != NO_CALL))
    if not len(rows):
        return QueueSteps(np.zeros(0, np.int64), np.zeros(0, np.int64))
    starts = trace.device.start[rows]
    # A row can start before the call that queued it has returned.
    queued = np.minimum(trace.calls.end[launcher[rows]], starts)
    moments = np.concatenate((queued, starts))
    change = np.concatenate((np.ones(len(rows), np.int64), np.full(len(rows), -1, np.int64)))
    order = np.argsort(moments, kind="stable")
    moments, level = moments[order], np.cumsum(change[order])
    last = np.concatenate((moments[1:] != moments[:-1], [True]))
    return QueueSteps(moments[last], level[last])


@dataclass(frozen=True, slots=True)
class IdleSplit:
    """Idle nanoseconds by reason; the four add up to the idle time."""

    blocked_host: int
    slow_host: int
    communication: int
    other: int


def split_idle(
    trace: Trace, device: DeviceTime, blocked: Intervals, queue: QueueSteps
) -> IdleSplit:
    """Why the device was idle.

    `blocked_host`: exposed time of syncs. `slow_host`: nothing was queued, the host had not
    launched yet. `communication`: inside a collective on the host, or right before a communication
    kernel. `other`: work was queued and had not started (launch latency, stream order).
    """
    rest = device.idle - blocked
    collective = _collectives(trace) | _gaps_before(device.idle, device.communication)
    inside = rest & collective
    rest = rest - collective
    slow = rest - queue.queued()
    return IdleSplit(
        blocked_host=(device.idle & blocked).length,
        slow_host=slow.length,
        communication=inside.length,
        other=rest.length - slow.length,
    )


def _collectives(trace: Trace) -> Intervals:
    found = Intervals.empty()
    is_collective = np.array([_HOST_COLLECTIVE.match(name) is not None for name in trace.names])
    for table in (trace.ops, trace.annotations):
        if len(table):
            rows = is_collective[table.name]
            found = found | Intervals.union_of(table.start[rows], table.end[rows])
    return found


def _gaps_before(idle: Intervals, work: Intervals) -> Intervals:
    """Idle intervals that end where an interval of `work` starts."""
    before = np.isin(idle.end, work.start)
    return Intervals(idle.start[before], idle.end[before])
