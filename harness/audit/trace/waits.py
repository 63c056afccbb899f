"""Syncs of a trace: each time that the host waited for the device, in however many calls.

A pageable copy and the stream synchronise that PyTorch issues right after it are one sync: the
host asked once. Which of the two calls holds the time differs between driver versions, so the
blocked time is the union of both.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from harness.audit.trace.columns import MEMCPY, Bool, Int32, Int64, Interner
from harness.audit.trace.links import NO_CALL
from harness.audit.trace.runtime_apis import ApiRole, base_name, is_device_wide
from harness.audit.trace.stacks import FrameKind, Stack, enclosing_stacks
from harness.clock.intervals import Intervals

if TYPE_CHECKING:
    from harness.audit.trace.columns import Trace

_COPY_NAME = re.compile(r"Memcpy ([HDPA])to([HDPA])(?: \((\w+) -> (\w+)\))?")
_PROFILER_FRAME = re.compile(r"torch/(?:autograd/)?profiler")
NO_COPY = -1
_MAX_PROCESSES = 1024

Direction = Literal["h2d", "d2h", "d2d", "p2p"]
Memory = Literal["pinned", "pageable", "device", "unknown"]
_MEMORY: dict[str, Memory] = {"Pageable": "pageable", "Pinned": "pinned"}


@dataclass(frozen=True, slots=True)
class CopyKind:
    """Direction and host memory of a copy, read from its name."""

    direction: Direction
    memory: Memory
    """Host memory; `unknown` where the driver says only `Host`."""

    @property
    def touches_host(self) -> bool:
        """Whether one side is host memory."""
        return self.direction in ("h2d", "d2h")


def copy_kind(name: str) -> CopyKind:
    """`Memcpy HtoD (Pageable -> Device)` and its kin."""
    match = _COPY_NAME.match(name)
    if match is None:
        return CopyKind("d2d", "unknown")
    source, target, source_memory, target_memory = match.groups()
    if "P" in (source, target):
        return CopyKind("p2p", "device")
    if "H" not in (source, target):
        return CopyKind("d2d", "device")
    memory = (source_memory if source == "H" else target_memory) or ""
    return CopyKind("d2h" if target == "H" else "h2d", _MEMORY.get(memory, "unknown"))


@dataclass(frozen=True, slots=True)
class Waits:
    """One entry for each sync, in time order."""

    start: Int64
    end: Int64
    blocked: Int64
    """Nanoseconds inside the calls of this sync."""
    thread: Int32
    call: Int64
    """The call that names it: the synchronise, or the copy where there is none."""
    copy: Int64
    """Device row of the copy it belongs to, or `NO_COPY`."""
    stacks: list[Stack]
    own: Bool
    """The profiler's own, when it stops or starts; no part of the program."""

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: Bool) -> Waits:
        """The syncs for which `chosen` holds."""
        return Waits(
            self.start[chosen],
            self.end[chosen],
            self.blocked[chosen],
            self.thread[chosen],
            self.call[chosen],
            self.copy[chosen],
            [stack for stack, keep in zip(self.stacks, chosen, strict=True) if keep],
            self.own[chosen],
        )


def blocked_time(trace: Trace, waits: Waits) -> Intervals:
    """Time in which at least one thread was inside a call of a sync."""
    start, end = trace.calls.start[waits.call], trace.calls.end[waits.call]
    # What is blocked beyond the naming call lies in the copy call, with which the sync begins.
    in_copy = waits.blocked - (end - start)
    return Intervals.union_of(
        np.concatenate((start, waits.start)), np.concatenate((end, waits.start + in_copy))
    )


def count_api_calls(trace: Trace) -> dict[str, int]:
    """Synchronise and blocking-copy calls by API name, the profiler's own included."""
    calls = trace.calls
    blocking = np.isin(calls.role, (ApiRole.SYNCHRONIZE, ApiRole.BLOCKING_COPY))
    counts = Counter(calls.name[blocking].tolist())
    return {trace.names[name]: count for name, count in counts.most_common()}


def _copy_rows(trace: Trace, launcher: Int64) -> Int64:
    """For each call the device copy it queued, or `NO_COPY`."""
    rows = np.full(len(trace.calls), NO_COPY, dtype=np.int64)
    copies = np.flatnonzero((trace.device.kind == MEMCPY) & (launcher != NO_CALL))
    rows[launcher[copies]] = copies
    return rows


def find_waits(trace: Trace, launcher: Int64) -> Waits:
    """All syncs of the trace. `launcher` is from `launching_calls`."""
    calls = trace.calls
    copy_row = _copy_rows(trace, launcher)
    kinds = {name: copy_kind(trace.names[name]) for name in np.unique(trace.device.name)}
    kind_of = {
        call: kinds[trace.device.name[row]]
        for call, row in enumerate(copy_row.tolist())
        if row != NO_COPY
    }
    roles, starts, ends = calls.role.tolist(), calls.start.tolist(), calls.end.tolist()
    synchronise, blocking, copying = (
        int(ApiRole.SYNCHRONIZE),
        int(ApiRole.BLOCKING_COPY),
        int(ApiRole.ASYNC_COPY),
    )
    relevant = [
        call
        for call, role in enumerate(roles)
        if role in (synchronise, blocking)
        or (role == copying and call in kind_of and kind_of[call].touches_host)
    ]
    chosen = np.array(relevant, dtype=np.int64)
    found_stacks = enclosing_stacks(
        trace, calls.thread[chosen], calls.start[chosen], calls.end[chosen]
    )
    stacks = dict(zip(relevant, found_stacks, strict=True))
    previous = _previous_call_of_thread(trace)
    found: list[tuple[int, int, int, int, int]] = []
    paired: set[int] = set()
    for call in relevant:
        if roles[call] != synchronise:
            continue
        start, end = starts[call], ends[call]
        blocked, copy = end - start, NO_COPY
        before = int(previous[call])
        if before in stacks and _finishes_copy(trace, before, call, stacks):
            copy = int(copy_row[before])
            paired.add(before)
            if kind_of[before].memory != "pinned":
                start = starts[before]
                blocked += ends[before] - start
        found.append((start, end, blocked, call, copy))
    for call in relevant:
        if roles[call] == synchronise or call in paired:
            continue
        copy = int(copy_row[call])
        start, end = starts[call], ends[call]
        if roles[call] == blocking or _blocks_alone(
            kind_of[call], end, int(trace.device.end[copy])
        ):
            found.append((start, end, end - start, call, copy))
    found.sort()
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    call_of = table[:, 3]
    wait_stacks = [stacks[call] for call in call_of.tolist()]
    return Waits(
        start=table[:, 0],
        end=table[:, 1],
        blocked=table[:, 2],
        thread=calls.thread[call_of],
        call=call_of,
        copy=table[:, 4],
        stacks=wait_stacks,
        own=_profilers_own(trace, call_of, wait_stacks),
    )


def _previous_call_of_thread(trace: Trace) -> Int64:
    """For each call the call before it on its thread, memory management and events left out."""
    calls = trace.calls
    previous = np.full(len(calls), NO_CALL, dtype=np.int64)
    rows = np.flatnonzero(~np.isin(calls.role, (ApiRole.ALLOCATOR, ApiRole.EVENT)))
    rows = rows[np.argsort(calls.thread[rows], kind="stable")]
    same = calls.thread[rows[1:]] == calls.thread[rows[:-1]]
    previous[rows[1:][same]] = rows[:-1][same]
    return previous


def _finishes_copy(trace: Trace, before: int, call: int, stacks: dict[int, Stack]) -> bool:
    """Whether the synchronise `call` finishes the copy that `before` queued, within one op."""
    if trace.calls.role[before] != ApiRole.ASYNC_COPY:
        return False
    if base_name(trace.names[trace.calls.name[call]]) != "StreamSynchronize":
        return False
    return _innermost_op(stacks[before]) == _innermost_op(stacks[call])


def _innermost_op(stack: Stack) -> int | None:
    return next((frame.row for frame in reversed(stack) if frame.kind is FrameKind.OP), None)


def _blocks_alone(kind: CopyKind, call_end: int, copy_end: int) -> bool:
    """Whether an "asynchronous" copy made the host wait with no synchronise after it.

    To pageable memory the driver returns only when the data are there. From pageable memory it
    may return once the data are staged; it waited if it came back after the copy had ended.
    """
    if kind.memory != "pageable":
        return False
    return kind.direction == "d2h" or call_end >= copy_end


def _profilers_own(trace: Trace, calls_of_waits: Int64, stacks: list[Stack]) -> Bool:
    """The device synchronise with which the profiler stops, and the one with which it starts.

    It lies inside no op and, where there are Python stacks, in no frame but the profiler's; work
    is queued only before it (stop) or only after it (start).
    """
    calls = trace.calls
    own = np.zeros(len(calls_of_waits), dtype=np.bool_)
    processes = process_numbers(trace)
    candidates: dict[int, list[int]] = {}
    for wait, call in enumerate(calls_of_waits.tolist()):
        if is_device_wide(trace.names[calls.name[call]]) and _outside_program(stacks[wait]):
            candidates.setdefault(int(processes[calls.thread[call]]), []).append(wait)
    queues_work = np.isin(
        calls.role, (ApiRole.LAUNCH, ApiRole.ASYNC_COPY, ApiRole.BLOCKING_COPY, ApiRole.MEMSET)
    )
    for process, waits in candidates.items():
        of_process = np.flatnonzero(queues_work & (processes[calls.thread] == process))
        times = calls.start[of_process]
        last = waits[-1]
        if not len(times) or times[-1] < calls.start[calls_of_waits[last]]:
            own[last] = True
        for wait in waits[:-1]:
            starts_profile = any(_PROFILER_FRAME.search(f.name) for f in stacks[wait])
            if starts_profile:
                own[wait] = True
    return own


def process_numbers(trace: Trace) -> Int64:
    """For each thread of `Trace.threads` a number that its process shares with no other."""
    numbers: Interner[int | str] = Interner()
    found = np.array([numbers[process] for process, _ in trace.threads], dtype=np.int64)
    # No job has this many; taking them as one keeps the time of a hostile file bounded.
    return found if len(numbers) <= _MAX_PROCESSES else np.zeros_like(found)


def _outside_program(stack: Stack) -> bool:
    if any(frame.kind is FrameKind.OP for frame in stack):
        return False
    python = [frame.name for frame in stack if frame.kind is FrameKind.PYTHON]
    return not python or any(_PROFILER_FRAME.search(name) for name in python)
