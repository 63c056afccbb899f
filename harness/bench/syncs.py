"""Counts syncs, idle time and overlap in one profiled pass. Pure: works on recorded intervals.

- A **sync** is a host call that waited for the device: any `*Synchronize`, a synchronous copy, or
  an asynchronous copy from or to pageable memory. A pageable copy that is at once followed by the
  synchronise that completes it is one sync, not two.
- **blocked** is the host's time inside such calls.
- **exposed** is the device's idle time that they cause: from the moment the device ran dry while
  the host waited, until the first work launched afterwards starts. Where the device was idle
  before the call already, only the call itself counts.
- **overlap** = U(copies and compute) / U(copies); **idle** = span - U(all device work).
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from harness.bench.intervals import Interval, gaps, intersection, length, union
from harness.records import Overlap, Phase, Source, SyncCount

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SYNCHRONIZE = re.compile(r"^(cuda|hip|cu)\w*Synchronize")
_BLOCKING_COPY = re.compile(r"^(cudaMemcpy|hipMemcpy)(2D|3D|DtoH|HtoD|DtoD|WithStream)?$")
_QUERY = re.compile(r"Captur|LastError|GetDevice|EventQuery|StreamQuery")
"""Calls that ask and do not touch the queue; torch makes them between a copy and its wait."""

WorkKind = Literal["compute", "copy", "memset"]


@dataclass(frozen=True)
class HostCall:
    """One call of the CUDA or HIP runtime."""

    name: str
    start_ns: int
    end_ns: int
    thread: int
    correlation: int | None = None


@dataclass(frozen=True)
class DeviceWork:
    """One kernel, copy or memset on the device."""

    kind: WorkKind
    name: str
    start_ns: int
    end_ns: int
    correlation: int | None = None


@dataclass(frozen=True)
class ProfiledSteps:
    """What one profiled pass recorded."""

    phases: tuple[tuple[Phase, Interval], ...]
    """The host's time in each phase, one entry a phase and step."""
    calls: tuple[HostCall, ...]
    work: tuple[DeviceWork, ...]
    num_steps: int


def find_syncs(steps: ProfiledSteps) -> list[HostCall]:
    """The calls that waited, in order of time; a merged copy spans its synchronise too."""
    pageable = {
        work.correlation
        for work in steps.work
        if work.kind == "copy" and "pageable" in work.name.lower()
    }
    found: list[HostCall] = []
    for calls in _by_thread(steps.calls):
        waiting: HostCall | None = None
        for call in calls:
            if _QUERY.search(call.name):
                continue
            if waiting is not None and _SYNCHRONIZE.match(call.name):
                found.append(replace(waiting, name=call.name, end_ns=call.end_ns))
                waiting = None
                continue
            if waiting is not None:
                found.append(waiting)
            waiting = call if call.correlation in pageable and "Async" in call.name else None
            if _SYNCHRONIZE.match(call.name) or _BLOCKING_COPY.match(call.name):
                found.append(call)
        if waiting is not None:
            found.append(waiting)
    return sorted(found, key=lambda call: call.start_ns)


def count_syncs(steps: ProfiledSteps, *, arm: str, source: Source) -> tuple[SyncCount, ...]:
    """Syncs of one step, by phase and for the whole batch; calls outside the phases (the
    profiler's own stop) do not count."""
    syncs = find_syncs(steps)
    idle = gaps(union((work.start_ns, work.end_ns) for work in steps.work))
    busy = union((work.start_ns, work.end_ns) for work in steps.work)
    windows = [exposure_window(sync, busy) for sync in syncs]

    def entry(phase: Phase, spans: Sequence[Interval]) -> SyncCount:
        chosen = [i for i, sync in enumerate(syncs) if _within(sync.start_ns, spans)]
        blocked = union((syncs[i].start_ns, syncs[i].end_ns) for i in chosen)
        exposed = intersection(union(windows[i] for i in chosen), idle)
        return SyncCount(
            arm=arm,
            phase=phase,
            count=len(chosen) / steps.num_steps,
            source=source,
            method="profiler",
            blocked_ms=length(blocked) / 1e6 / steps.num_steps,
            exposed_ms=length(exposed) / 1e6 / steps.num_steps if steps.work else None,
        )

    names: tuple[Phase, ...] = ("forward", "backward", "optimizer")
    by_phase = {
        name: union(span for phase, span in steps.phases if phase == name) for name in names
    }
    everywhere = union(span for _, span in steps.phases)
    return (*(entry(name, by_phase[name]) for name in names), entry("batch", everywhere))


def exposure_window(sync: HostCall, busy: Sequence[Interval]) -> Interval:
    """The time in which an idle device is this sync's doing; `busy` must come from `union`."""
    starts = [start for start, _ in busy]
    next_start = _first_at_or_after(starts, sync.end_ns)
    last = bisect.bisect_left(starts, sync.end_ns) - 1
    ran_dry = last >= 0 and sync.start_ns < busy[last][1] <= sync.end_ns
    if ran_dry and next_start is not None:
        return busy[last][1], next_start
    return sync.start_ns, sync.end_ns


def measure_overlap(steps: ProfiledSteps, *, arm: str, source: Source) -> Overlap | None:
    """Overlap, copy and idle time of one step; `None` where the device did nothing."""
    if not steps.work:
        return None
    copies, compute = _spans(steps.work, "copy"), _spans(steps.work, "compute")
    busy = union((work.start_ns, work.end_ns) for work in steps.work)
    copy_ns = length(copies)
    return Overlap(
        arm=arm,
        overlap=length(intersection(copies, compute)) / copy_ns if copy_ns else None,
        copy_ms=copy_ns / 1e6 / steps.num_steps,
        idle_ms=length(gaps(busy)) / 1e6 / steps.num_steps,
        source=source,
    )


def _spans(work: Iterable[DeviceWork], kind: WorkKind) -> list[Interval]:
    return union((item.start_ns, item.end_ns) for item in work if item.kind == kind)


def _by_thread(calls: Iterable[HostCall]) -> list[list[HostCall]]:
    threads: dict[int, list[HostCall]] = {}
    for call in sorted(calls, key=lambda call: call.start_ns):
        threads.setdefault(call.thread, []).append(call)
    return list(threads.values())


def _within(moment: int, spans: Sequence[Interval]) -> bool:
    return any(start <= moment < end for start, end in spans)


def _first_at_or_after(ordered: Sequence[int], moment: int) -> int | None:
    index = bisect.bisect_left(ordered, moment)
    return ordered[index] if index < len(ordered) else None
