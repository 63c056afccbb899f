"""The live audit: what of it runs without a GPU, and the GPU part where there is one."""

from __future__ import annotations

import gzip
import importlib.util
import json
import threading
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from torch._utils import CallbackRegistry
from trace_paths import DATA

from harness.audit.live.live_audit import LiveAudit, audit_live, require_gpu, with_call_lines
from harness.audit.live.live_syncs import SyncRecorder
from harness.audit.tensorboard import save_for_tensorboard
from harness.audit.trace import audit_trace
from harness.errors import UsageError, WorkloadError

if TYPE_CHECKING:
    from pathlib import Path

NO_GPU = not torch.cuda.is_available()


class FakeCuda:
    """Remembers the mode, as `torch.cuda` does for the whole process."""

    def __init__(self) -> None:
        self.mode: int | str = 2
        self.history: list[int | str] = []

    def get_sync_debug_mode(self) -> int:
        return int(self.mode)

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        self.mode = debug_mode
        self.history.append(debug_mode)


def fake_trace() -> SimpleNamespace:
    return SimpleNamespace(
        StreamSynchronizationCallbacks=CallbackRegistry("stream"),
        DeviceSynchronizationCallbacks=CallbackRegistry("device"),
        EventSynchronizationCallbacks=CallbackRegistry("event"),
    )


def warn_of_sync() -> None:
    warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=2)


def test_each_source_is_counted_at_its_line_and_thread() -> None:
    cuda, trace = FakeCuda(), fake_trace()
    with SyncRecorder(cuda=cuda, gpu_trace=trace) as recorder:
        for _ in range(3):
            trace.StreamSynchronizationCallbacks.fire_callbacks(0)
            warn_of_sync()
        thread = threading.Thread(
            target=lambda: trace.DeviceSynchronizationCallbacks.fire_callbacks(), name="loader"
        )
        thread.start()
        thread.join()
    assert (recorder.num_callbacks, recorder.num_warnings) == (4, 3)
    by_thread = {(line.thread, line.kinds): line for line in recorder.lines()}
    device = by_thread["loader", ("device",)]
    assert device.num_callbacks == 1
    assert device.code is not None
    assert "fire_callbacks" in device.code
    callback = next(line for line in recorder.lines() if line.num_callbacks == 3)
    assert callback.code == "trace.StreamSynchronizationCallbacks.fire_callbacks(0)"
    assert callback.file == __file__


def test_everything_global_is_put_back_also_after_an_exception() -> None:
    cuda, trace = FakeCuda(), fake_trace()
    filters, show = list(warnings.filters), warnings.showwarning
    with pytest.raises(ZeroDivisionError), SyncRecorder(cuda=cuda, gpu_trace=trace):
        raise ZeroDivisionError
    assert cuda.history == ["warn", 2]
    assert list(warnings.filters) == filters
    assert warnings.showwarning is show
    assert trace.StreamSynchronizationCallbacks.callback_list == []


def test_other_warnings_go_where_they_always_went() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with SyncRecorder(cuda=FakeCuda(), gpu_trace=fake_trace()) as recorder:
            warnings.warn("something else", stacklevel=1)
            warn_of_sync()
    assert [str(entry.message) for entry in caught] == ["something else"]
    assert recorder.num_warnings == 1


def test_the_profiler_pass_is_read_like_any_trace(tmp_path: Path) -> None:
    """On this machine's CPU: steps and stacks are there, and nothing is claimed of a device."""
    path = tmp_path / "trace.json"
    with LiveAudit(target="toy", trace_path=path) as live:
        for _ in range(2):
            live.step()
            torch.ones(4).sum().item()
    report = live.report
    assert report is not None
    assert (report.source, report.target, report.steps) == ("live", "toy", 2)
    if NO_GPU:
        assert report.timeline.span_ms is None
        assert any("no device activity" in note for note in report.notes)
    assert audit_trace(path).steps == 2


def test_an_exception_in_the_block_passes_through_without_a_report() -> None:
    live = LiveAudit()
    with pytest.raises(ZeroDivisionError), live:
        raise ZeroDivisionError
    assert live.report is None


def test_exact_lines_replace_function_lines_where_they_are_sure() -> None:
    report = audit_trace(DATA / "h100_owlv2_tail.json.gz")
    recorder = SyncRecorder(cuda=FakeCuda(), gpu_trace=fake_trace())
    scope: dict[str, object] = {}
    source = "\n" * 1430 + "def box_predictor(fire):\n    fire(0)\n"
    # A checkout of one's own: of an installed package the line that called it would be taken.
    file = "/checkout/transformers/models/owlv2/modeling_owlv2.py"
    exec(compile(source, file, "exec"), scope)
    with recorder:
        registry = recorder.gpu_trace.StreamSynchronizationCallbacks
        scope["box_predictor"](registry.fire_callbacks)  # type: ignore[operator]  # just built
    live = with_call_lines(report, recorder)
    lines = {site.function: site.line for site in live.sites}
    assert lines == {"box_predictor": 1432, "_ensure_tensor_on_device": 1173}
    assert live.trace is not None
    assert live.trace.agreement is not None
    assert (live.trace.agreement.profiler, live.trace.agreement.callbacks) == (8, 1)
    assert live.trace.agreement.remarks


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_without_a_gpu_the_ways_out_are_named() -> None:
    with pytest.raises(UsageError, match="use the emulated audit"):
        audit_live(lambda: None, target="toy")


# --- TensorBoard ---


def test_a_trace_is_stored_where_tensorboard_finds_it(tmp_path: Path) -> None:
    plain = tmp_path / "trace.json"
    plain.write_text('{"traceEvents": []}')
    first = save_for_tensorboard(plain, tmp_path / "logs", worker="rank0", time_ms=12)
    packed = DATA / "hta_event_sync_a100.json.gz"
    second = save_for_tensorboard(packed, tmp_path / "logs", worker="rank1", time_ms=12)
    assert first.name == "rank0.12.pt.trace.json.gz"
    assert json.loads(gzip.decompress(first.read_bytes())) == {"traceEvents": []}
    assert second.read_bytes() == packed.read_bytes()
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == [first.name, second.name]


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot copy"):
        save_for_tensorboard(DATA / "hta_event_sync_a100.json.gz", blocked)
    with pytest.raises(UsageError, match="neither dots"):
        save_for_tensorboard(DATA / "hta_event_sync_a100.json.gz", tmp_path, worker="a.b")


@pytest.mark.skipif(
    importlib.util.find_spec("torch_tb_profiler") is None,
    reason="torch-tb-profiler is not installed (pip install 'gapless[tensorboard]')",
)
def test_tensorboard_shows_a_trace_we_stored(tmp_path: Path) -> None:
    from tensorboard_server import plugin_data

    save_for_tensorboard(DATA / "param_dlrm_v100_rank0of8.json.gz", tmp_path / "run")
    runs, workers = plugin_data(tmp_path)
    assert runs == ["run"]
    assert workers == ["gapless"]


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="needs a CUDA or ROCm GPU; this machine has none")
def test_a_step_on_the_gpu_is_seen_by_all_three_counters() -> None:
    x = torch.randn(256, 256, device="cuda")

    def step() -> None:
        (x @ x).sum().item()
        torch.nonzero(x > 0)
        torch.cuda.synchronize()

    report = audit_live(step, target="toy", num_steps=3)
    kinds = {site.kind: site.count_per_step * site.syncs_per_call for site in report.sites}
    assert kinds == {"scalar_read": 1, "dynamic_output_size": 1, "explicit_synchronize": 1}
    assert {site.function for site in report.sites} == {"step"}
    assert {site.code for site in report.sites if site.kind != "explicit_synchronize"}
    details = report.trace
    assert details is not None
    assert details.agreement is not None
    assert (details.agreement.profiler, details.agreement.callbacks) == (9, 9)
    assert details.agreement.warnings == 6
    assert report.timeline.span_ms is not None
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="needs a CUDA or ROCm GPU; this machine has none")
def test_a_step_that_raises_on_the_gpu_is_the_workloads_failure() -> None:
    def step() -> None:
        raise ValueError("bad batch")

    with pytest.raises(WorkloadError, match="bad batch"):
        audit_live(step, target="toy")
    assert msgspec.json.encode(require_gpu()) == b"null"
