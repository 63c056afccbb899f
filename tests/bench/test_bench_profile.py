"""Sync counts, exposed time and overlap of a profiled pass, against hand-made answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.bench.profile import run_labelled_step, summarise_trace
from tests.toys.bench_toys import ToyWorkload

if TYPE_CHECKING:
    from pathlib import Path

HOST, BACKWARD_THREAD, STREAM = 1, 2, 7


def event(category: str, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """A span of the profiler's trace format; `start` and `end` in milliseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start * 1000,
        "dur": (end - start) * 1000,
        "pid": 100,
        "tid": HOST,
    } | more


def step(offset: float = 0.0) -> list[dict[str, Any]]:
    """The labels of one step: each phase is ten milliseconds long."""
    phases = ("forward", "backward", "optimizer")
    return [
        event("user_annotation", f"gapless.{name}", offset + 10 * i, offset + 10 * (i + 1))
        for i, name in enumerate(phases)
    ]


def launch(number: int, called: float, start: float, end: float) -> list[dict[str, Any]]:
    """A kernel and the call that queued it."""
    link = {"correlation": number}
    return [
        event("cuda_runtime", "cudaLaunchKernel", called, called + 0.01, args=link),
        event(
            "kernel", "gemm", start, end, pid=0, tid=STREAM,
            args=link | {"device": 0, "stream": STREAM},
        ),
    ]  # fmt: skip


def copy(number: int, name: str, called: float, start: float, end: float) -> list[dict[str, Any]]:
    """A copy on a stream of its own, and the call that queued it."""
    link = {"correlation": number}
    return [
        event("cuda_runtime", "cudaMemcpyAsync", called, called + 0.01, args=link),
        event(
            "gpu_memcpy", name, start, end, pid=0, tid=STREAM + 1,
            args=link | {"device": 0, "stream": STREAM + 1},
        ),
    ]  # fmt: skip


def wait(start: float, end: float, name: str = "cudaStreamSynchronize", **more: Any) -> Any:
    return event("cuda_runtime", name, start, end, **more)


@pytest.fixture
def summarise(tmp_path: Path) -> Any:
    def run(events: list[dict[str, Any]], num_steps: int = 1) -> tuple[dict[str, Any], Any]:
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}))
        seen = summarise_trace(path, num_steps, arm="x", source="measured")
        return {sync.phase: sync for sync in seen.syncs}, seen.overlap[0] if seen.overlap else None

    return run


def test_each_sync_counts_in_the_phase_it_began_in_whatever_its_thread(summarise: Any) -> None:
    syncs, _ = summarise(
        [
            *step(),
            *launch(1, 0.5, 1, 29),
            wait(1, 2),
            wait(11, 12, "cudaEventSynchronize", tid=BACKWARD_THREAD),
            wait(13, 14, "cudaDeviceSynchronize"),
            wait(15, 16, "cudaStreamWaitEvent"),
            # The one that ends the pass, after the last phase.
            wait(30.5, 31, "cudaDeviceSynchronize"),
        ]
    )
    assert {phase: sync.count for phase, sync in syncs.items()} == {
        "forward": 1,
        "backward": 2,
        "optimizer": 0,
        "batch": 3,
    }
    assert syncs["batch"].blocked_ms == pytest.approx(3)
    assert {sync.method for sync in syncs.values()} == {"profiler"}


def test_exposed_time_is_what_the_device_idled_for_want_of_a_waiting_host(summarise: Any) -> None:
    syncs, overlap = summarise([*step(), *launch(1, 0.1, 1, 5), wait(2, 5), *launch(2, 6, 7, 29)])
    assert syncs["forward"].blocked_ms == pytest.approx(3)
    assert syncs["forward"].exposed_ms == pytest.approx(2)
    assert syncs["backward"].exposed_ms == 0
    assert overlap.idle_ms == pytest.approx(2)


def test_overlap_is_the_share_of_copy_time_with_a_kernel_running(summarise: Any) -> None:
    _, overlap = summarise(
        [
            *step(),
            *launch(1, 0.1, 1, 4),
            *copy(2, "Memcpy HtoD (Pinned -> Device)", 0.2, 3, 7),
        ]
    )
    assert overlap.overlap == pytest.approx(0.25)
    assert overlap.copy_ms == pytest.approx(4)
    assert overlap.idle_ms == 0


def test_figures_are_for_one_step(summarise: Any) -> None:
    syncs, overlap = summarise(
        [
            *step(),
            *step(offset=30),
            *launch(1, 0.1, 1, 20),
            *launch(2, 21, 24, 50),
            wait(2, 5),
            wait(32, 35),
            wait(36, 37),
        ],
        num_steps=2,
    )
    assert syncs["forward"].count == 1.5
    assert syncs["forward"].blocked_ms == pytest.approx(3.5)
    assert overlap.idle_ms == pytest.approx(2)


def test_without_device_work_nothing_is_known_of_the_device(summarise: Any) -> None:
    syncs, overlap = summarise([*step(), wait(1, 2)])
    assert syncs["forward"].count == 1
    assert syncs["forward"].exposed_ms is None
    assert overlap is None


def test_the_phases_are_found_in_a_trace_that_the_profiler_wrote(tmp_path: Path) -> None:
    workload = ToyWorkload({})
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as profiler:
        run_labelled_step(workload, 0)
        run_labelled_step(workload, 1)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    # A wait at the moment each backward began, written into the trace beside what is there.
    trace = json.loads(path.read_text())
    labels = [e for e in trace["traceEvents"] if e.get("name") == "gapless.backward"]
    assert len(labels) == 2
    trace["traceEvents"] += [
        label | {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "args": {}}
        for label in labels
    ]
    path.write_text(json.dumps(trace))
    syncs, _, report, _ = summarise_trace(path, 2, arm="x", source="measured")
    assert {sync.phase: sync.count for sync in syncs} == {
        "forward": 0,
        "backward": 1,
        "optimizer": 0,
        "batch": 1,
    }
    # The sites are those of the same waits, per step.
    assert report is not None
    assert (report.target, report.steps, report.syncs_per_step) == ("x", 2, 1)
    (site,) = report.sites
    assert (site.phase, site.count_per_step) == ("backward", 1)
