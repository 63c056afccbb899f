"""The virtual clock by hand: every time below is worked out on paper."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clock.clock_figures import figures_of
from harness.clock.queue_timeline import QueueTimes, Recording, Timeline

if TYPE_CHECKING:
    from harness.clock.queue_timeline import DeviceRow

TIMES = QueueTimes(latency_ns=10, gap_ns=0, limit=4)


def recorded(timeline: Timeline) -> Recording:
    timeline.host_ns = max(timeline.host_ns, timeline.all_done_ns())
    return timeline.stop_recording()


def fresh(times: QueueTimes = TIMES) -> Timeline:
    timeline = Timeline(times)
    timeline.start_recording()
    return timeline


def spans(rows: list[DeviceRow]) -> list[tuple[int, int]]:
    return [(row.start_ns, row.end_ns) for row in rows]


def test_kernels_of_one_stream_follow_each_other_and_the_host_runs_ahead() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.host_ns += 5
    timeline.kernel(0, 50, "b")
    assert timeline.host_ns == 5
    assert spans(recorded(timeline).rows) == [(10, 110), (110, 160)]


def test_a_gap_lies_between_two_kernels_that_were_both_queued() -> None:
    timeline = fresh(QueueTimes(latency_ns=10, gap_ns=7))
    timeline.kernel(0, 100, "a")
    timeline.kernel(0, 50, "b")
    assert spans(recorded(timeline).rows) == [(10, 110), (117, 167)]


def test_streams_run_side_by_side_until_one_waits_for_the_other() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.kernel(1, 30, "b")
    timeline.record(7, 0)
    timeline.wait(1, 7)
    timeline.kernel(1, 30, "c")
    assert spans(recorded(timeline).rows) == [(10, 110), (10, 40), (110, 140)]


def test_an_event_marks_what_was_queued_before_its_record_and_nothing_later() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.record(7, 0)
    timeline.kernel(0, 1000, "later")
    timeline.wait(1, 7)
    timeline.kernel(1, 30, "b")
    assert spans(recorded(timeline).rows)[2] == (110, 140)
    assert timeline.event_ns(7) == 110
    assert timeline.event_ns(8) is None


def test_an_event_recorded_anew_is_waited_for_anew() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.record(7, 0)
    timeline.kernel(0, 100, "b")
    timeline.record(7, 0)
    timeline.wait(1, 7)
    timeline.kernel(1, 1, "c")
    assert spans(recorded(timeline).rows)[2] == (210, 211)


def test_waiting_for_an_event_that_was_never_recorded_waits_for_nothing() -> None:
    timeline = fresh()
    timeline.wait(1, 99)
    timeline.kernel(1, 5, "a")
    assert spans(recorded(timeline).rows) == [(10, 15)]


def test_a_full_queue_stops_the_host_until_the_oldest_launch_starts() -> None:
    timeline = fresh(QueueTimes(latency_ns=10, gap_ns=0, limit=2))
    for _ in range(3):
        timeline.kernel(0, 100, "k")
    # Two wait in the queue; the third launch needs the first to have left it, at 10.
    assert timeline.host_ns == 10
    timeline.kernel(0, 100, "k")
    assert timeline.host_ns == 110


def test_each_direction_has_an_engine_of_its_own() -> None:
    timeline = fresh()
    timeline.copy(1, 100, "h2d", "up", 1)
    timeline.copy(2, 100, "d2h", "down", 1)
    timeline.copy(3, 100, "h2d", "up again", 1)
    assert spans(recorded(timeline).rows) == [(10, 110), (10, 110), (110, 210)]


def test_a_copy_that_is_ready_early_takes_a_gap_before_one_that_waits() -> None:
    timeline = fresh()
    timeline.kernel(0, 500, "k")
    timeline.record(1, 0)
    timeline.wait(1, 1)
    timeline.copy(1, 100, "h2d", "waits", 1)
    timeline.copy(2, 100, "h2d", "ready", 1)
    timeline.copy(2, 401, "h2d", "too long for the gap", 1)
    assert spans(recorded(timeline).rows)[1:] == [(510, 610), (10, 110), (610, 1011)]


def test_a_wait_exposes_the_idle_time_until_the_next_kernel() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.block(timeline.stream_done_ns(0), 20, "cudaStreamSynchronize", 0)
    assert timeline.host_ns == 130
    timeline.host_ns += 8
    timeline.kernel(0, 100, "b")
    figures = figures_of(recorded(timeline))
    (wait,) = figures.waits
    # Idle from 110 to 148, all of it after the wait began and less than the 130 it blocked.
    assert (wait.blocked_ns, wait.exposed_ns) == (130, 38)
    assert (figures.span_ns, figures.busy_ns, figures.idle_ns) == (238, 200, 38)


def test_a_wait_that_another_stream_covers_exposes_nothing() -> None:
    timeline = fresh()
    timeline.kernel(1, 1000, "long")
    timeline.kernel(0, 100, "a")
    timeline.block(timeline.stream_done_ns(0), 20, "cudaStreamSynchronize", 0)
    timeline.kernel(0, 100, "b")
    (wait,) = figures_of(recorded(timeline)).waits
    assert wait.exposed_ns == 0


def test_no_copy_means_no_overlap_rather_than_none_of_it() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    assert figures_of(recorded(timeline)).overlap is None


def test_overlap_is_the_share_of_copy_time_beside_kernels() -> None:
    timeline = fresh()
    timeline.kernel(0, 100, "a")
    timeline.copy(1, 400, "h2d", "up", 1)
    assert figures_of(recorded(timeline)).overlap == 0.25


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 50), st.sampled_from(["k", "h2d", "d2h", "w"])),
        min_size=1,
        max_size=30,
    )
)
def test_order_holds_whatever_is_queued(calls: list[tuple[int, int, str]]) -> None:
    timeline = fresh()
    for stream, length, what in calls:
        timeline.host_ns += 3
        if what == "k":
            timeline.kernel(stream, length, "k")
        elif what == "w":
            timeline.record(stream, stream)
            timeline.wait((stream + 1) % 3, stream)
        else:
            timeline.copy(stream, length, "h2d" if what == "h2d" else "d2h", what, 1)
    rows = recorded(timeline).rows
    for stream in range(3):
        mine = [row for row in rows if row.stream == stream]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(mine))
    for kind in ("h2d", "d2h"):
        taken = sorted(spans([row for row in rows if row.kind == kind]))
        assert all(a[1] <= b[0] for a, b in pairwise(taken))
    assert all(row.start_ns >= row.call_ns + TIMES.latency_ns for row in rows)
