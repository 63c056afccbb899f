"""Exposed time by hand, and against its definition nanosecond by nanosecond."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clock.exposed_time import ExposedTime, HostSyncs, LaunchTimes, expose, find_windows
from harness.clock.intervals import Intervals


class Sync(NamedTuple):
    start: int
    end: int
    thread: int = 0


class Launch(NamedTuple):
    call: int
    arrival: int
    """First moment of its work."""
    end: int


def device_of(launches: list[Launch]) -> Intervals:
    return Intervals.union_of(
        np.array([launch.arrival for launch in launches], dtype=np.int64),
        np.array([launch.end for launch in launches], dtype=np.int64),
    )


def found_of(syncs: list[Sync], launches: list[Launch]) -> tuple[ExposedTime, list[int]]:
    """The result, and the work queued after each sync."""
    busy = device_of(launches)
    host = HostSyncs(*(np.array([s[n] for s in syncs], dtype=np.int64) for n in range(3)))
    call, arrival, end = (np.array([one[n] for one in launches], np.int64) for n in range(3))
    windows = find_windows(host, LaunchTimes(call, arrival, end - arrival), int(busy.end[-1]))
    found = expose(host, windows.low, windows.high, busy.gaps())
    return found, windows.work_after.tolist()


def exposed_of(syncs: list[Sync], launches: list[Launch]) -> list[int]:
    return [int(time) for time in found_of(syncs, launches)[0].exposed]


# Two kernels with an idle device from 100 to 150 between them.
PAIR = [Launch(0, 10, 100), Launch(140, 150, 250)]


@pytest.mark.parametrize(
    ("name", "syncs", "launches", "expected"),
    [
        ("drained until the next launch arrives", [Sync(5, 120)], PAIR, [50]),
        ("began when the device idled already", [Sync(130, 135)], PAIR, [5]),
        ("no more than it blocked", [Sync(95, 105)], PAIR, [10]),
        ("over while the device works", [Sync(5, 60)], PAIR, [50]),
        ("after the last work", [Sync(260, 300)], PAIR, [0]),
        ("before any work", [Sync(0, 5)], [Launch(20, 30, 40), Launch(60, 70, 80)], [0]),
        # The second waits again before anything was launched: it takes over from where it begins.
        ("handed on", [Sync(5, 110), Sync(120, 130)], PAIR, [20, 10]),
        # Two threads wait over the same idle time: it is counted once.
        ("two threads at once", [Sync(5, 120, 0), Sync(6, 121, 1)], PAIR, [50, 0]),
        (
            "one thread waits while another feeds the device",
            [Sync(5, 400, 0)],
            [Launch(0, 10, 100), Launch(140, 150, 250), Launch(410, 420, 500)],
            [170],
        ),
        ("a launch that begins with the wait is its own", [Sync(140, 260)], PAIR, [10]),
    ],
)
def test_known_answers(
    name: str, syncs: list[Sync], launches: list[Launch], expected: list[int]
) -> None:
    assert exposed_of(syncs, launches) == expected, name


def test_work_after_a_sync_is_what_was_queued_before_the_next() -> None:
    launches = [
        Launch(0, 10, 100),
        Launch(140, 150, 250),
        Launch(150, 250, 280),
        Launch(400, 410, 415),
    ]
    _, work = found_of([Sync(5, 120), Sync(160, 300)], launches)
    assert work == [130, 5]


def test_no_sync_exposes_nothing() -> None:
    assert exposed_of([], PAIR) == []


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Sync], list[Launch]]:
    """Syncs of up to three threads, each thread's one after the other, and launches on a device."""
    syncs = []
    for thread in range(draw(st.integers(1, 3))):
        now = draw(st.integers(0, 10))
        for _ in range(draw(st.integers(0, 4))):
            start = now + draw(st.integers(0, 20))
            now = start + draw(st.integers(0, 25))
            syncs.append(Sync(start, now, thread))
            now += 1
    calls = sorted(draw(st.lists(st.integers(0, 90), min_size=1, max_size=8)))
    launches = []
    for call in calls:
        arrival = call + draw(st.integers(0, 20))
        launches.append(Launch(call, arrival, arrival + draw(st.integers(1, 20))))
    return sorted(syncs), launches


def by_definition(syncs: list[Sync], launches: list[Launch]) -> list[set[int]]:
    """The idle moments in the window of each sync, no moment in two of them."""
    busy = {t for launch in launches for t in range(launch.arrival, launch.end)}
    idle = set(range(min(busy), max(busy) + 1)) - busy
    windows, taken = [], 0
    for number, sync in enumerate(syncs):
        later = [launch for launch in launches if launch.call >= sync.end]
        high = max(later[0].arrival if later else max(busy) + 1, sync.end)
        following = syncs[number + 1] if number + 1 < len(syncs) else None
        if following is not None and following.thread == sync.thread:
            high = min(high, max(following.start, sync.end))
        low = sync.start
        earlier = [launch for launch in launches if launch.call < sync.end]
        if earlier and earlier[-1].call > sync.start:
            low = min(max(earlier[-1].arrival, sync.start), high)
        windows.append({t for t in idle if max(low, taken) <= t < high})
        taken = max(taken, high)
    return windows


@settings(max_examples=400, deadline=None)
@given(histories())
def test_it_is_the_idle_time_of_each_window_and_at_most_the_blocked_time(
    history: tuple[list[Sync], list[Launch]],
) -> None:
    syncs, launches = history
    windows = by_definition(syncs, launches)
    found, _ = found_of(syncs, launches)
    assert found.idle.tolist() == [len(window) for window in windows]
    expected = [
        min(len(window), sync.end - sync.start) for window, sync in zip(windows, syncs, strict=True)
    ]
    assert found.exposed.tolist() == expected
    # The moments are the first of each window, so that they add up to the sum.
    idle = device_of(launches).gaps()
    first = {
        t for window, most in zip(windows, expected, strict=True) for t in sorted(window)[:most]
    }
    moments = found.moments(idle)
    covered = zip(moments.start.tolist(), moments.end.tolist(), strict=True)
    assert {t for start, end in covered for t in range(start, end)} == first
    assert moments.length == sum(expected) <= idle.length
