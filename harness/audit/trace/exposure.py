"""What each sync of a trace cost: which device it waited for, and what that device idled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.links import NO_CALL
from harness.audit.trace.waits import NO_COPY, process_numbers
from harness.clock.exposed_time import HostSyncs, LaunchTimes, expose, find_windows

if TYPE_CHECKING:
    from harness.audit.trace.columns import Bool, Int64, Trace
    from harness.audit.trace.device_timeline import DeviceTime
    from harness.audit.trace.waits import Waits
    from harness.clock.intervals import Intervals


@dataclass(frozen=True, slots=True)
class Exposure:
    """One entry for each sync, nanoseconds."""

    device_busy: Int64
    """Device work during the blocked time."""
    idle_to_launch: Int64
    """Idle from the start of the sync until the next launch reached the device."""
    exposed: Int64
    """Part of it that is due to the sync."""
    work_after: Int64
    """Device time of the work queued between this sync and the next: what could fill the idle."""
    idle: dict[int, Intervals]
    """Per device: the exposed time itself."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Calls that queued device work, in time order."""

    call_start: Int64
    arrival: Int64
    """Start of the first device row of the call."""
    end: Int64
    """End of its last row."""
    stream: Int64
    work: Int64
    """Device time of all rows of the call."""
    process: Int64
    thread: Int64
    device: Int64

    def of(self, device: int, process: int) -> LaunchTimes:
        """The launches of one process on one device."""
        chosen = np.flatnonzero((self.device == device) & (self.process == process))
        return LaunchTimes(self.call_start[chosen], self.arrival[chosen], self.work[chosen])


def find_launches(trace: Trace, launcher: Int64, device_of_row: Int64) -> Launches:
    """Launches that have device rows. `device_of_row`: device number of each device row."""
    rows = np.flatnonzero(launcher != NO_CALL)
    # Rows are in time order, so the first row of a call is its earliest.
    calls, first, inverse = np.unique(launcher[rows], return_index=True, return_inverse=True)
    length = trace.device.end[rows] - trace.device.start[rows]
    work = np.zeros(len(calls), dtype=np.int64)
    np.add.at(work, inverse, length)
    end = np.full(len(calls), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(end, inverse, trace.device.end[rows])
    thread = trace.calls.thread[calls].astype(np.int64)
    return Launches(
        call_start=trace.calls.start[calls],
        arrival=trace.device.start[rows[first]],
        end=end,
        stream=trace.device.stream[rows[first]].astype(np.int64),
        work=work,
        process=process_numbers(trace)[thread] if len(calls) else thread,
        thread=thread,
        device=device_of_row[rows[first]],
    )


def device_of_waits(
    trace: Trace, waits: Waits, launches: Launches, device_of_row: Int64, default: int
) -> Int64:
    """The device each sync waited for: that of its copy, else the one its thread, or its process,
    queues most work on."""
    processes = process_numbers(trace)
    by_thread = {t: _most_used(launches, launches.thread == t) for t in np.unique(waits.thread)}
    by_process = {
        p: _most_used(launches, launches.process == p)
        for p in np.unique(processes[waits.thread]).tolist()
    }
    found = np.empty(len(waits), dtype=np.int64)
    for index, (thread, copy) in enumerate(
        zip(waits.thread.tolist(), waits.copy.tolist(), strict=True)
    ):
        if copy != NO_COPY:
            found[index] = device_of_row[copy]
            continue
        choices = (by_thread[thread], by_process[int(processes[thread])], default)
        found[index] = next(choice for choice in choices if choice is not None)
    return found


def _most_used(launches: Launches, chosen: Bool) -> int | None:
    devices, counts = np.unique(launches.device[chosen], return_counts=True)
    return int(devices[np.argmax(counts)]) if len(devices) else None


def find_exposure(
    trace: Trace,
    waits: Waits,
    wait_device: Int64,
    launches: Launches,
    devices: dict[int, DeviceTime],
) -> Exposure:
    """Cost of each sync on its own device."""
    size = len(waits)
    result = Exposure(
        device_busy=np.zeros(size, dtype=np.int64),
        idle_to_launch=np.zeros(size, dtype=np.int64),
        exposed=np.zeros(size, dtype=np.int64),
        work_after=np.zeros(size, dtype=np.int64),
        idle={},
    )
    processes = process_numbers(trace)
    wait_process = processes[waits.thread] if size else np.zeros(0, dtype=np.int64)
    every = HostSyncs(waits.start, waits.end, waits.thread)
    for number, device in devices.items():
        mine = np.flatnonzero(wait_device == number)
        syncs = every.where(mine)
        low, high = syncs.start.copy(), syncs.end.copy()
        for process in np.unique(wait_process[mine]):
            chosen = wait_process[mine] == process
            queued = launches.of(number, int(process))
            window = find_windows(syncs.where(chosen), queued, device.end)
            low[chosen], high[chosen] = window.low, window.high
            result.work_after[mine[chosen]] = window.work_after
        found = expose(syncs, low, high, device.idle)
        result.device_busy[mine] = device.busy.covered_within(syncs.start, syncs.end)
        result.idle_to_launch[mine] = found.idle
        result.exposed[mine] = found.exposed
        result.idle[number] = found.moments(device.idle)
    return result
