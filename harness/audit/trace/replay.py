"""The time without a site's syncs: the trace replayed on a small model of host and device.

Host time between calls, kernel times and launch latencies stay as recorded. Each stream runs its
rows in order; a row starts when its launch has arrived, its stream is free, and the row of another
stream it was seen to follow has ended; a sync that is kept lasts until what it waited for has
ended, plus the time it took to come back. This is an estimate: dependencies that the
trace does not show (NCCL peers, host threads that wait for each other) are not in the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Int64
    from harness.audit.trace.exposure import Launches
    from harness.audit.trace.waits import Waits

_MAX_VISITS = 600_000
"""Items replayed over all sites; the most costly sites come first."""
_FOLLOWS_NS = 5_000
"""A row that starts this soon after another one's end is taken to have waited for it."""
_NONE = -1


@dataclass(frozen=True, slots=True)
class _Launch:
    call: int
    latency: int
    duration: int
    stream: int
    follows: int
    """Stream of the row it waited for, or `_NONE`."""
    process: int


@dataclass(frozen=True, slots=True)
class _Wait:
    number: int
    start: int
    end: int
    stream: int
    """Stream whose end it waited for, or `_NONE`."""
    residual: int
    """Time from that end until the host came back; the whole sync where it waited for nothing."""
    process: int


def replay_without(launches: Launches, waits: Waits, groups: Sequence[Int64]) -> list[int | None]:
    """For each group of syncs: nanoseconds by which the device span shrinks without them.

    `None` for the cheapest groups of a large trace, which are not replayed.
    """
    if not len(launches.call_start) or not len(waits):
        return [None] * len(groups)
    items = _items(launches, waits)
    num_streams = int(launches.stream.max()) + 1
    recorded = _replay(items, num_streams, frozenset())
    num_replayed = max(1, _MAX_VISITS // len(items))
    saved: list[int | None] = [
        max(0, recorded - _replay(items, num_streams, frozenset(group.tolist())))
        for group in groups[:num_replayed]
    ]
    return saved + [None] * (len(groups) - len(saved))


def _items(launches: Launches, waits: Waits) -> list[_Launch | _Wait]:
    """Launches and syncs in host order, with what the recording says about each."""
    num_launches = len(launches.call_start)
    time = np.concatenate((launches.call_start, waits.start))
    # At equal times the launch comes first: a blocking copy waits for the copy it queues.
    order = np.argsort(time, kind="stable").tolist()
    process_of_thread = dict(zip(launches.thread.tolist(), launches.process.tolist(), strict=True))
    gaps = launches.arrival - launches.call_start
    typical = max(0, int(np.median(gaps[gaps >= 0]))) if (gaps >= 0).any() else 0
    call, arrival = launches.call_start.tolist(), launches.arrival.tolist()
    ends, streams = launches.end.tolist(), launches.stream.tolist()
    processes = launches.process.tolist()
    starts, wait_ends = waits.start.tolist(), waits.end.tolist()
    threads = waits.thread.tolist()
    stream_end: dict[int, int] = {}
    items: list[_Launch | _Wait] = []
    for index in order:
        if index < num_launches:
            stream, begin = streams[index], arrival[index]
            free = stream_end.get(stream)
            queued = free is not None and begin - free < _FOLLOWS_NS
            follows = _NONE if queued else _followed(stream_end, stream, begin)
            latency = max(0, begin - call[index])
            if queued or follows != _NONE:
                latency = min(latency, typical)
            items.append(
                _Launch(
                    call[index], latency, ends[index] - begin, stream, follows, processes[index]
                )
            )
            stream_end[stream] = max(free or ends[index], ends[index])
            continue
        number = index - num_launches
        process = process_of_thread.get(threads[number], _NONE)
        if process == _NONE:
            continue  # This thread queues nothing: its syncs delay no launch.
        start, end = starts[number], wait_ends[number]
        finished = [(t, s) for s, t in stream_end.items() if start < t <= end + _FOLLOWS_NS]
        done, stream = max(finished, default=(start, _NONE))
        items.append(_Wait(number, start, end, stream, max(0, end - done), process))
    return items


def _followed(stream_end: dict[int, int], stream: int, begin: int) -> int:
    """The other stream whose last row ended just before `begin`."""
    ended = [
        (end, other)
        for other, end in stream_end.items()
        if other != stream and 0 <= begin - end < _FOLLOWS_NS
    ]
    return max(ended, default=(0, _NONE))[1]


def _replay(items: Sequence[_Launch | _Wait], num_streams: int, removed: frozenset[int]) -> int:
    """End of the last device row when the waits `removed` take no time."""
    free = [_LONG_AGO] * num_streams
    earlier: dict[int, int] = {}
    for item in items:
        ahead = earlier.get(item.process, 0)
        if isinstance(item, _Launch):
            start = item.call - ahead + item.latency
            if free[item.stream] > start:
                start = free[item.stream]
            if item.follows != _NONE and free[item.follows] > start:
                start = free[item.follows]
            free[item.stream] = start + item.duration
        elif item.number in removed:
            earlier[item.process] = ahead + item.end - item.start
        else:
            back = item.start - ahead
            if item.stream != _NONE and free[item.stream] > back:
                back = free[item.stream]
            earlier[item.process] = max(0, item.end - back - item.residual)
    return max(free)


_LONG_AGO = -(2**62)
