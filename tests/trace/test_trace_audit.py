"""Whole audits of small real traces: counts, owners, causes and times known beforehand."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from trace_paths import DATA, ROOT

from harness.audit.trace import TraceLimits, audit_trace
from harness.audit.trace.links import NO_CALL, launching_calls
from harness.audit.trace.load import load_trace
from harness.errors import UsageError
from harness.record.audit_report import from_json, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.audit_report import AuditReport, Site


def audit(name: str) -> AuditReport:
    return audit_trace(DATA / f"{name}.json.gz")


def waits_by(report: AuditReport, field: str) -> dict[str, float]:
    counts: dict[str, float] = {}
    for site in report.sites:
        key = str(getattr(site, field))
        counts[key] = counts.get(key, 0) + site.count_per_step * site.syncs_per_call
    return counts


WHOLE = {
    # name: steps, waits over all steps, profiler's own, exact span ms, exact idle share
    "hta_alexnet_a100_cuda_sync_events": (None, 20, 1, 12920.244, 0.9949),
    "hta_event_sync_a100": (1, 2, 1, 0.263, 0.8061),
    "hta_mi250_minitoy_train_rocm62": (2, 2, 1, None, None),
    "param_dlrm_v100_rank0of8": (1, 10, 1, 13.009, 0.4934),
    "kineto_h100_after_fix_2026": (None, 0, 0, None, None),
    "tracelens_b300_moe_large_capacity": (None, 3, 1, None, None),
}


@pytest.mark.parametrize("name", WHOLE)
def test_counts_and_times_of_whole_traces(name: str) -> None:
    steps, waits, own, span_ms, idle_share = WHOLE[name]
    report = audit(name)
    assert report.steps == steps
    assert report.syncs_per_step == waits / (steps or 1)
    assert report.profiler_own == own
    assert sum(report.api_calls.values()) == waits + own
    if span_ms is not None:
        assert report.timeline.span_ms == pytest.approx(span_ms, abs=5e-4)
        assert report.timeline.idle_ms / report.timeline.span_ms == pytest.approx(
            idle_share, abs=1e-4
        )


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json.gz")), ids=lambda path: path.stem)
def test_every_wait_has_an_owner_and_the_figures_add_up(path: Path) -> None:
    report = audit_trace(path)
    assert report.trace is not None
    assert report.trace.owned_share in (None, 1.0)
    total = sum(site.count_per_step * site.syncs_per_call for site in report.sites)
    assert total == pytest.approx(report.syncs_per_step)
    assert len(report.trace.sites) == len(report.sites)
    timeline = report.timeline
    if timeline.span_ms is not None:
        assert timeline.busy_ms + timeline.idle_ms == pytest.approx(timeline.span_ms)
        assert report.trace.exposed_ms <= timeline.idle_ms + 1e-9
    assert from_json(to_json(report)) == report


def test_the_pipeline_helper_is_named_as_the_cause_on_both_vendors() -> None:
    cuda, rocm = audit("h100_owlv2_tail"), audit("mi300_owlv2_tail")
    for report in (cuda, rocm):
        assert {(site.file, site.function) for site in report.sites} == {
            ("transformers/pipelines/base.py", "_ensure_tensor_on_device"),
            ("transformers/models/owlv2/modeling_owlv2.py", "box_predictor"),
        }
        assert all(site.op == "aten::_to_copy" for site in report.sites)
    box: Site = next(site for site in cuda.sites if site.function == "box_predictor")
    assert box.module == "Owlv2ForObjectDetection"
    assert box.phase == "forward"
    assert box.library == "transformers/models/owlv2/modeling_owlv2.py:1421 box_predictor"
    assert cuda.trace is not None
    assert cuda.trace.sites[0].called_from is not None
    assert "run_on_input" in cuda.trace.sites[0].called_from


def test_blocking_copies_of_rocm_count_like_synchronises_of_cuda() -> None:
    report = audit("mi300_owlv2_tail")
    assert report.api_calls == {"hipMemcpyWithStream": 11}
    assert report.syncs_per_step == 11


def test_ops_inside_another_librarys_op_keep_their_chain() -> None:
    report = audit("a100_control_step1010")
    assert report.trace is not None
    chains = {cost.op_chain for cost in report.trace.sites}
    assert (
        "fbgemm::permute_sparse_features",
        "aten::item",
        "aten::_local_scalar_dense",
    ) in chains
    assert set(waits_by(report, "kind")) == {"scalar_read", "d2h_copy"}


def test_time_inside_the_copy_call_counts_as_blocked() -> None:
    """On this driver the host waits in cudaMemcpyAsync and the synchronise after it is free."""
    report = audit("a100_control_step1010")
    assert report.trace is not None
    assert report.trace.blocked_ms > 7
    assert report.trace.exposed_ms < 0.5


def test_a_stack_recorded_on_the_op_gives_the_line_in_a_trace_of_2021() -> None:
    report = audit("v100_resnet50_2021_step6")
    (site,) = report.sites
    assert (site.file, site.line) == ("resnet50_profiler_api.py", 44)
    assert (site.kind, site.count_per_step) == ("pageable_h2d", 2)
    assert report.steps == 1


def test_a_wait_in_backward_knows_its_node_and_forward_op() -> None:
    report = audit("param_dlrm_v100_rank0of8")
    assert report.trace is not None
    index = next(i for i, site in enumerate(report.sites) if site.phase == "backward")
    cost = report.trace.sites[index]
    assert (cost.autograd_node, cost.forward_op) == ("IndexBackward0", "aten::index")


def test_a_synchronise_outside_every_op_is_told_by_what_ran_before() -> None:
    report = audit("tracelens_b300_moe_large_capacity")
    (site,) = report.sites
    assert site.kind == "explicit_synchronize"
    assert site.function is not None
    assert site.function.startswith("after MoE[experts=8")


def test_graph_launches_link_all_their_kernels() -> None:
    trace = load_trace(DATA / "mi300_vllm_graphs.json.gz")
    launcher = launching_calls(trace.calls, trace.device)
    assert (launcher != NO_CALL).all()
    graphs = {name for name in trace.names if name == "hipGraphLaunch"}
    per_call = np.bincount(launcher)
    assert graphs
    assert per_call.max() > 10


def test_a_folder_is_one_report_with_a_row_per_rank(tmp_path: Path) -> None:
    single = audit("param_dlrm_v100_rank0of8")
    for rank in range(2):
        shutil.copy(DATA / "param_dlrm_v100_rank0of8.json.gz", tmp_path / f"rank{rank}.json.gz")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "readme.md").write_text("no trace")
    report = audit_trace(tmp_path)
    assert report.trace is not None
    assert [row.file for row in report.trace.ranks] == ["rank0.json.gz", "rank1.json.gz"]
    assert report.syncs_per_step == single.syncs_per_step
    assert report.timeline == single.timeline
    assert report.api_calls["cudaStreamSynchronize"] == 20
    assert any("notes.json was left out" in note for note in report.notes)


def test_an_empty_folder_and_a_missing_file_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no"):
        audit_trace(tmp_path)
    with pytest.raises(UsageError, match="there is no trace"):
        audit_trace(tmp_path / "trace.json")


def test_progress_reaches_the_size_of_the_file() -> None:
    path = DATA / "param_dlrm_v100_rank0of8.json.gz"
    seen: list[tuple[int, int]] = []
    audit_trace(path, on_progress=lambda done, size: seen.append((done, size)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_reading_a_trace_needs_no_torch() -> None:
    """A trace is often looked at where torch takes seconds to import or is not installed."""
    code = "import sys, harness.audit.trace; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_small_chunks_change_nothing() -> None:
    path = DATA / "param_dlrm_v100_rank0of8.json.gz"
    assert audit_trace(path, limits=TraceLimits(chunk_bytes=5_000)) == audit_trace(path)


@pytest.mark.parametrize(
    ("shared_trace", "idle_share", "span_ms"),
    [
        ("tracelens_h100_owlv2_pystack", 0.4744, 1078.288),
        ("tracelens_mi300_owlv2_pystack", 0.6347, 908.338),
        ("tracelens_b200_eager_pystack", 0.8627, 84.487),
        ("hta_df_index_v100_rank1of2_216k", 0.4226, 1732.965),
        ("hta_tracediff_control_a100_rank3of8", 0.1636, 464.594),
    ],
    indirect=["shared_trace"],
)
def test_span_and_idle_of_full_traces_are_exact(
    shared_trace: Path, idle_share: float, span_ms: float
) -> None:
    report = audit_trace(shared_trace)
    assert report.timeline.span_ms == pytest.approx(span_ms, abs=5e-4)
    assert report.timeline.idle_ms / report.timeline.span_ms == pytest.approx(idle_share, abs=1e-4)
    assert report.trace is not None
    assert (report.trace.owned_share or 1.0) >= 0.95


@pytest.mark.parametrize(
    "shared_trace", ["tracelens_h100_owlv2_pystack"], indirect=True, ids=["h100"]
)
def test_the_owlv2_trace_is_blocked_by_placement_not_by_the_data_loader(shared_trace: Path) -> None:
    report = audit_trace(shared_trace)
    assert waits_by(report, "function") == {
        "_ensure_tensor_on_device": 75,
        "box_predictor": 5,
        "run_torch_profiler": 1,
    }
    assert "data" not in waits_by(report, "phase")
