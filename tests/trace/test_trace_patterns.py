"""Evidence of patterns and links that few public traces hold, on written traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trace_simulator import Step, simulate

from harness.audit.trace import audit_trace

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.audit_report import AuditReport

HOST = {"ph": "X", "pid": 100, "tid": 100}


def span(cat: str, name: str, start: float, end: float, **changes: Any) -> dict[str, Any]:
    return {**HOST, "cat": cat, "name": name, "ts": start, "dur": end - start, **changes}


def audit(folder: Path, events: list[dict[str, Any]]) -> AuditReport:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return audit_trace(path)


def test_small_reads_repeated_in_one_module_call_are_a_polling_loop(tmp_path: Path) -> None:
    program = [Step("launch", 50), *[Step("read", 2), Step("launch", 10)] * 6]
    run = simulate([*program, Step("work", 50), *program])
    half = run.waits[6][0] - 20
    events = [
        *run.events,
        span("python_function", "nn.Module: Experts_3", 900, half),
        span("python_function", "nn.Module: Experts_4", half + 1, 9_000),
        span("python_function", "moe.py(40): forward", 901, half - 1),
        span("python_function", "moe.py(40): forward", half + 2, 8_999),
    ]
    report = audit(tmp_path, events)
    assert report.trace is not None
    (loop,) = report.trace.polling
    assert (loop.calls, loop.reads_per_call, loop.max_reads_per_call) == (2, 6, 6)
    site = report.sites[loop.site]
    assert (site.module, site.file, site.line, site.phase) == ("Experts", "moe.py", 40, "forward")


def test_a_few_reads_in_a_module_call_are_no_loop(tmp_path: Path) -> None:
    run = simulate([Step("launch", 50), *[Step("read", 2), Step("launch", 10)] * 3])
    events = [*run.events, span("python_function", "nn.Module: Head_0", 900, 9_000)]
    report = audit(tmp_path, events)
    assert report.trace is not None
    assert report.trace.polling == ()


def test_uploads_of_equal_size_and_shape_are_told_from_others(tmp_path: Path) -> None:
    events = []
    for number, (size, start) in enumerate([(64, 0), (64, 100), (64, 200), (32, 300)]):
        shape = {"Input Dims": [[size // 8], [size // 8], []]}
        events += [
            span("cpu_op", "aten::to", start, start + 30),
            span("cpu_op", "aten::copy_", start + 1, start + 29, args=shape),
            span(
                "cuda_runtime",
                "cudaMemcpyAsync",
                start + 2,
                start + 5,
                args={"correlation": number},
            ),
            {
                **span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start + 6, start + 8),
                "args": {"device": 0, "stream": 7, "correlation": number, "bytes": size},
            },
        ]
    report = audit(tmp_path, events)
    assert report.trace is not None
    (upload,) = report.trace.repeated_uploads
    assert (upload.op, upload.bytes_per_copy, upload.count_per_step) == ("aten::to", 64, 3)
    assert json.loads(upload.shape or "") == [[8], [8], []]
    assert report.syncs_per_step == 0


def test_backward_finds_its_forward_line_by_flow_where_no_numbers_are(tmp_path: Path) -> None:
    read = simulate([Step("launch", 50), Step("read", 2), Step("launch", 5)])
    node = "autograd::engine::evaluate_function: IndexBackward0"
    forward = {"pid": 100, "tid": 55}
    flow = {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 9}
    events = [
        *read.events,
        span("cpu_op", node, 1_000, 1_500),
        span("python_function", "train.py(12): step", 90, 300, **forward),
        span("python_function", "nn.Module: Net_0", 95, 290, **forward),
        span("cpu_op", "aten::index", 100, 150, **forward),
        {**flow, **forward, "ts": 100},
        {**flow, "ph": "f", "pid": 100, "tid": 100, "ts": 1_000, "bp": "e"},
    ]
    report = audit(tmp_path, events)
    (site,) = report.sites
    assert (site.phase, site.file, site.line, site.module) == ("backward", "train.py", 12, "Net")
    assert report.trace is not None
    assert report.trace.sites[0].autograd_node == "IndexBackward0"


def test_each_step_has_its_own_row(tmp_path: Path) -> None:
    run = simulate([Step("launch", 50), Step("wait"), Step("launch", 50), Step("wait")])
    middle = run.waits[0][1]
    events = [
        *run.events,
        span("user_annotation", "ProfilerStep#3", 990, middle),
        span("user_annotation", "ProfilerStep#4", middle, 1_200),
    ]
    report = audit(tmp_path, events)
    assert report.trace is not None
    assert report.steps == 2
    assert [(step.name, step.syncs) for step in report.trace.steps] == [
        ("ProfilerStep#3", 1),
        ("ProfilerStep#4", 1),
    ]
    assert report.syncs_per_step == 1
    assert report.trace.waits_outside_steps == 0


def test_a_watching_thread_that_waits_all_along_is_not_the_cause(tmp_path: Path) -> None:
    run = simulate([Step("launch", 50), Step("work", 400), Step("launch", 50), Step("work", 9)])
    watcher = span("cuda_runtime", "cudaEventSynchronize", 1_001, 1_900, args={"correlation": 999})
    report = audit(tmp_path, [*run.events, {**watcher, "tid": 101}])
    (site,) = report.sites
    assert site.exposed_ms == 0
    assert report.timeline.idle_slow_host_ms == report.timeline.idle_ms


def test_communication_is_hidden_as_far_as_compute_runs_beside_it(tmp_path: Path) -> None:
    kernel = {"pid": 0, "args": {"device": 0, "stream": 7}}
    other = {"pid": 0, "args": {"device": 0, "stream": 20}}
    events = [
        span("kernel", "gemm", 0, 100, **kernel),
        span("kernel", "ncclDevKernel_AllReduce_Sum_f32", 60, 160, **other),
        span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 80, 120, **other),
    ]
    report = audit(tmp_path, events)
    assert report.timeline.communication_hidden == 0.4
    assert report.timeline.overlap == 0.5
    assert report.trace is not None
    assert report.trace.communication_exposed_ms == 0.06
    assert report.trace.copy_exposed_ms == 0
