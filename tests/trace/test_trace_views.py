"""What is made from an audit: comparison, annotated trace, HTA's numbers."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from trace_paths import DATA

from harness.audit.trace import annotate, audit_trace, compare_audits, compat_hta
from harness.errors import NotComparableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["h100_owlv2_tail", "hta_alexnet_a100_cuda_sync_events", "a100_control_step1010"]


def test_an_audit_compared_with_itself_shows_nothing_unless_asked() -> None:
    report = audit_trace(DATA / "param_dlrm_v100_rank0of8.json.gz")
    quiet, full = compare_audits(report, report), compare_audits(report, report, everything=True)
    assert quiet.rows == ()
    assert len(full.rows) == quiet.num_compared > 20
    assert all(row.difference in (0, None) for row in full.rows)


def test_a_comparison_names_what_moved() -> None:
    report = audit_trace(DATA / "param_dlrm_v100_rank0of8.json.gz")
    fixed = msgspec.structs.replace(
        report, sites=report.sites[1:], syncs_per_step=report.syncs_per_step - 1, target="fixed"
    )
    comparison = compare_audits(report, fixed)
    moved = {(row.group, row.name): (row.a, row.b) for row in comparison.rows}
    assert moved["summary", "syncs"] == (10, 9)
    first = report.sites[0]
    assert moved["syncs", f"{first.op} {first.kind} {first.phase} in {first.function}"] == (1, 0)
    assert {group for group, _ in moved} == {"summary", "syncs", "exposed"}


def test_audits_with_and_without_steps_do_not_compare() -> None:
    with_steps = audit_trace(DATA / "param_dlrm_v100_rank0of8.json.gz")
    without = audit_trace(DATA / "tracelens_b300_moe_large_capacity.json.gz")
    with pytest.raises(NotComparableError, match="marks no steps"):
        compare_audits(with_steps, without)


@pytest.mark.parametrize("name", NAMES)
def test_an_annotated_trace_keeps_every_event_and_gives_the_same_audit(
    name: str, tmp_path: Path
) -> None:
    source, out = DATA / f"{name}.json.gz", tmp_path / "annotated.json.gz"
    num_added = annotate(source, out)
    before, after = (json.loads(gzip.decompress(p.read_bytes())) for p in (source, out))
    assert after["traceEvents"][num_added:] == before["traceEvents"]
    added = after["traceEvents"][:num_added]
    assert {event["pid"] for event in added} == {"gapless"}
    report = audit_trace(source)
    waits = [event for event in added if event["name"].startswith("wait: ")]
    assert len(waits) == report.syncs_per_step * (report.steps or 1)
    exposed_us = sum(e["dur"] for e in added if "because the host waited" in e["name"])
    assert exposed_us / 1e3 == pytest.approx(report.trace.exposed_ms, abs=1e-3)
    assert [event for event in added if event["ph"] == "C"]
    again = audit_trace(out)
    assert msgspec.structs.replace(again, target="") == msgspec.structs.replace(report, target="")


def test_annotating_leaves_nothing_behind_where_it_fails(tmp_path: Path) -> None:
    source = DATA / "param_dlrm_v100_rank0of8.json.gz"
    with pytest.raises(UsageError, match="cannot write"):
        annotate(source, tmp_path / "missing" / "out.json.gz")
    copy = tmp_path / "trace.json.gz"
    copy.write_bytes(source.read_bytes())
    with pytest.raises(UsageError, match="is the trace itself"):
        annotate(copy, copy)
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents": 3}')
    with pytest.raises(UsageError):
        annotate(broken, tmp_path / "out.json.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "trace.json.gz"]


HTA = {
    # Printed by HolisticTraceAnalysis 0.5.0 under pandas 3.1.1: idle, compute, non-compute and
    # kernel time in us, communication overlap in percent.
    "hta_alexnet_a100_cuda_sync_events": (12929684, 10637, 55690, 12996011, None),
    "hta_event_sync_a100": (264, 49, 23, 336, None),
    "hta_mi250_minitoy_train_rocm62": (8780, 96, 35, 8911, None),
    "param_dlrm_v100_rank0of8": (6419, 1034, 5556, 13009, 4.5),
    "tracelens_b300_moe_large_capacity": (337, 10200, 0, 10537, None),
}


@pytest.mark.parametrize("name", HTA)
def test_htas_numbers_are_reproduced(name: str) -> None:
    numbers = compat_hta(DATA / f"{name}.json.gz")
    assert (
        numbers.idle_time_us,
        numbers.compute_time_us,
        numbers.non_compute_time_us,
        numbers.kernel_time_us,
        numbers.comp_comm_overlap_pctg,
    ) == HTA[name]


def test_htas_idle_breakdown_is_reproduced() -> None:
    numbers = compat_hta(DATA / "param_dlrm_v100_rank0of8.json.gz")
    found = {s.stream: (s.host_wait_us, s.kernel_wait_us) for s in numbers.idle_breakdown}
    assert found == {"7": (11448, 123), "24": (5906, 18), "84": (4740, 3), "22": (145, 0)}


def test_where_hta_stops_with_an_assertion_we_say_so() -> None:
    with pytest.raises(UsageError, match="has no numbers for this trace"):
        compat_hta(DATA / "kineto_h100_after_fix_2026.json.gz")


@pytest.mark.parametrize(
    ("shared_trace", "expected"),
    [
        ("tracelens_h100_owlv2_pystack", (516680, 547123, 14484, 1078287)),
        ("tracelens_mi300_owlv2_pystack", (580846, 323172, 4319, 908337)),
        ("hta_df_index_v100_rank1of2_216k", (643612, 496485, 256572, 1396669)),
        ("hta_nccl_a100_rank0of2_eventsync24", (338781, 75169, 21636, 435586)),
        ("hta_tracediff_control_a100_rank3of8", (62119, 234760, 86525, 383404)),
        ("kineto_tb_resnet50_v100_nw4_2021", (164699, 495912, 16562, 677173)),
        ("tracelens_mi300_vllm_prefilldecode_piecewise", (800, 155599, 67, 156466)),
    ],
    indirect=["shared_trace"],
)
def test_htas_numbers_are_reproduced_on_full_traces(
    shared_trace: Path, expected: tuple[int, ...]
) -> None:
    numbers = compat_hta(shared_trace)
    assert expected == (
        numbers.idle_time_us,
        numbers.compute_time_us,
        numbers.non_compute_time_us,
        numbers.kernel_time_us,
    )
