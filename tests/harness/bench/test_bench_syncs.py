"""Sync counts, exposed time and overlap from recorded events, against hand-made answers."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.intervals import gaps, intersection, length, union
from harness.bench.profile import parse_trace, run_labelled_step
from harness.bench.syncs import (
    DeviceWork,
    HostCall,
    ProfiledSteps,
    count_syncs,
    find_syncs,
    measure_overlap,
)
from tests.toys.bench_toys import ToyWorkload

if TYPE_CHECKING:
    from harness.records import SyncCount

MS = 1_000_000
spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def points(intervals: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in intervals for point in range(start, end)}


@given(spans, spans)
def test_interval_arithmetic_agrees_with_sets_of_points(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    a, b = union(first), union(second)
    assert points(a) == points(first)
    assert length(a) == len(points(first))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(a))
    assert points(intersection(a, b)) == points(first) & points(second)
    if a:
        assert points(gaps(a)) == set(range(a[0][0], a[-1][1])) - points(a)


def call(name: str, start: float, end: float, correlation: int = 0, thread: int = 1) -> HostCall:
    return HostCall(name, round(start * MS), round(end * MS), thread, correlation)


def kernel(start: float, end: float) -> DeviceWork:
    return DeviceWork("compute", "gemm", round(start * MS), round(end * MS))


def copy(name: str, start: float, end: float, correlation: int = 0) -> DeviceWork:
    return DeviceWork("copy", name, round(start * MS), round(end * MS), correlation)


def steps(calls: list[HostCall], work: list[DeviceWork], num_steps: int = 1) -> ProfiledSteps:
    phases = (
        ("forward", (0, 10 * MS)),
        ("backward", (10 * MS, 20 * MS)),
        ("optimizer", (20 * MS, 30 * MS)),
    )
    return ProfiledSteps(phases, tuple(calls), tuple(work), num_steps)  # type: ignore[arg-type]


def by_phase(recorded: ProfiledSteps) -> dict[str, SyncCount]:
    return {c.phase: c for c in count_syncs(recorded, arm="x", source="measured")}


def test_every_kind_of_synchronise_counts_in_the_phase_it_was_called_in() -> None:
    recorded = steps(
        [
            call("cudaStreamSynchronize", 1, 2),
            call("cudaEventSynchronize", 11, 12),
            call("hipDeviceSynchronize", 13, 14),
            call("cudaMemcpy", 15, 16),
            call("hipMemcpyWithStream", 16, 17),
            call("cudaLaunchKernel", 3, 4),
            call("cudaStreamWaitEvent", 4, 5),
            call("cudaEventRecord", 5, 6),
            call("cudaMemcpyAsync", 6, 7, correlation=1),
            # The profiler's own, when it stops.
            call("cudaDeviceSynchronize", 31, 32),
        ],
        [copy("Memcpy HtoD (Pinned -> Device)", 6, 8, correlation=1)],
    )
    assert {name: c.count for name, c in by_phase(recorded).items()} == {
        "forward": 1,
        "backward": 4,
        "optimizer": 0,
        "batch": 5,
    }


def test_a_pageable_copy_and_the_wait_that_completes_it_are_one_sync() -> None:
    pageable = "Memcpy DtoH (Device -> Pageable)"
    recorded = steps(
        [
            call("cudaMemcpyAsync", 1, 2, correlation=1),
            call("cudaStreamIsCapturing", 2, 2.1),
            call("cudaStreamSynchronize", 3, 4),
            call("cudaMemcpyAsync", 5, 6, correlation=2),
            call("cudaLaunchKernel", 6, 7),
            call("cudaStreamSynchronize", 7, 8),
            call("cudaMemcpyAsync", 9, 9.5, correlation=3),
        ],
        [copy(pageable, 1, 2, 1), copy(pageable, 5, 6, 2), copy(pageable, 9, 9.5, 3)],
    )
    found = [(sync.start_ns / MS, sync.end_ns / MS) for sync in find_syncs(recorded)]
    assert found == [(1, 4), (5, 6), (7, 8), (9, 9.5)]


def test_a_copy_on_one_thread_is_not_completed_by_a_wait_on_another() -> None:
    recorded = steps(
        [
            call("cudaMemcpyAsync", 1, 2, correlation=1, thread=1),
            call("cudaStreamSynchronize", 2, 3, thread=2),
        ],
        [copy("Memcpy DtoH (Device -> Pageable)", 1, 2, 1)],
    )
    assert len(find_syncs(recorded)) == 2


def test_exposed_time_runs_from_when_the_device_ran_dry_to_the_next_launch() -> None:
    # The host waits from 2 to 5; the device is done at 5 and gets its next kernel at 7.
    recorded = steps(
        [call("cudaStreamSynchronize", 2, 5)], [kernel(0, 5), kernel(7, 9), kernel(10, 11)]
    )
    forward = by_phase(recorded)["forward"]
    assert forward.blocked_ms == 3
    assert forward.exposed_ms == 2
    assert by_phase(recorded)["backward"].exposed_ms == 0


def test_a_sync_that_another_stream_works_through_exposes_nothing() -> None:
    recorded = steps([call("cudaStreamSynchronize", 2, 5)], [kernel(0, 5), kernel(4, 9)])
    forward = by_phase(recorded)["forward"]
    assert (forward.count, forward.blocked_ms, forward.exposed_ms) == (1, 3, 0)


def test_an_idle_device_is_not_the_doing_of_a_sync_that_found_it_idle() -> None:
    recorded = steps([call("cudaStreamSynchronize", 5, 5.5)], [kernel(0, 2), kernel(9, 10)])
    assert by_phase(recorded)["forward"].exposed_ms == 0.5


def test_two_syncs_of_one_gap_do_not_count_it_twice() -> None:
    recorded = steps(
        [call("cudaStreamSynchronize", 1, 2), call("cudaStreamSynchronize", 2, 3)],
        [kernel(0, 2), kernel(6, 7)],
    )
    assert by_phase(recorded)["forward"].exposed_ms == 4


def test_figures_are_for_one_step() -> None:
    recorded = steps(
        [call("cudaStreamSynchronize", 2, 5), call("cudaStreamSynchronize", 12, 13)],
        [kernel(0, 5), kernel(7, 13), copy("Memcpy HtoD (Pinned -> Device)", 14, 18)],
        num_steps=2,
    )
    assert by_phase(recorded)["batch"].count == 1
    assert by_phase(recorded)["batch"].blocked_ms == 2
    overlap = measure_overlap(recorded, arm="x", source="measured")
    assert overlap is not None
    assert (overlap.copy_ms, overlap.idle_ms) == (2, 1.5)


def test_overlap_is_the_share_of_copy_time_with_a_kernel_running() -> None:
    recorded = steps(
        [],
        [
            kernel(0, 4),
            copy("Memcpy HtoD (Pinned -> Device)", 3, 6),
            copy("Memcpy DtoH (Device -> Pinned)", 5, 7),
        ],
    )
    overlap = measure_overlap(recorded, arm="x", source="measured")
    assert overlap is not None
    assert overlap.overlap == 0.25
    assert overlap.copy_ms == 4
    assert overlap.idle_ms == 0


def test_without_copies_there_is_no_share_and_without_work_no_overlap() -> None:
    overlap = measure_overlap(steps([], [kernel(0, 1)]), arm="x", source="measured")
    assert overlap is not None
    assert overlap.overlap is None
    assert measure_overlap(steps([], []), arm="x", source="measured") is None
    nothing = by_phase(steps([call("cudaStreamSynchronize", 1, 2)], []))["forward"]
    assert nothing.exposed_ms is None


def test_the_phases_are_found_in_a_trace_that_the_profiler_wrote(tmp_path: Path) -> None:
    workload = ToyWorkload({})
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as profiler:
        run_labelled_step(workload)
        run_labelled_step(workload)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    recorded = parse_trace(path.read_bytes(), 2)
    names = [phase for phase, _ in sorted(recorded.phases, key=lambda item: item[1])]
    assert names == ["forward", "backward", "optimizer"] * 2
    assert all(start < end for _, (start, end) in recorded.phases)
    assert recorded.calls == recorded.work == ()


def test_nanoseconds_of_a_trace_are_kept() -> None:
    event = {
        "ph": "X", "cat": "kernel", "name": "k", "ts": 1234567890.123, "dur": 0.007,
        "tid": 7, "args": {"correlation": 3},
    }  # fmt: skip
    content = json.dumps({"traceEvents": [event]}).encode()
    (work,) = parse_trace(content, 1).work
    assert (work.start_ns, work.end_ns) == (1234567890123, 1234567890130)
    assert work.correlation == 3


REAL_TRACES = Path(__file__).parents[4] / "shared" / "traces"


@pytest.mark.skipif(not REAL_TRACES.is_dir(), reason="no recorded traces beside the checkout")
@pytest.mark.parametrize(
    ("name", "idle_share"),
    [
        ("tracelens_h100_owlv2_pystack", 0.4744),
        ("tracelens_mi300_owlv2_pystack", 0.6347),
        ("tracelens_b200_eager_pystack", 0.8627),
    ],
)
def test_idle_time_of_recorded_traces_is_that_of_exact_arithmetic(
    name: str, idle_share: float
) -> None:
    content = gzip.decompress((REAL_TRACES / f"{name}.json.gz").read_bytes())
    recorded = parse_trace(content, 1)
    overlap = measure_overlap(recorded, arm="x", source="measured")
    assert overlap is not None
    assert overlap.idle_ms is not None
    starts = [work.start_ns for work in recorded.work]
    ends = [work.end_ns for work in recorded.work]
    span_ms = (max(ends) - min(starts)) / MS
    assert overlap.idle_ms / span_ms == pytest.approx(idle_share, abs=1e-4)
