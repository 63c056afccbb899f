"""What a modelled run keeps besides its record: the sites behind its counts, and its timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.arms import parse_arms
from gapless.bench_run import variants_of
from gapless.modelled import model_scenario
from harness.audit.trace.trace_files import audit_trace
from harness.record.store import Store
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.records import RunRecord

OPTIONS = {"fit": "narrow", "num_layers": 2, "tokens": 256, "documents": 4, "num_batches": 1}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, RunRecord]:
    store = Store(str(tmp_path_factory.mktemp("modelled")))
    arms = parse_arms(["moe-routing=argsort"], variants_of())
    record = model_scenario(get("gpt-oss-20b"), arms, "h100", OPTIONS, store=store.root)
    assert record.status == "complete", record.reason
    return store, store.read(record.id)


def test_the_sites_add_up_to_the_counts_of_the_run(kept: tuple[Store, RunRecord]) -> None:
    store, record = kept
    counts = {sync.arm: sync for sync in record.syncs if sync.phase == "batch"}
    assert record.audited_arms == ("baseline", "moe-routing=argsort")
    for audit in store.audits(record.id):
        report, count = audit.report, counts[audit.arm]
        sites = (*report.sites, *report.intended)
        assert sum(s.count_per_step * s.syncs_per_call for s in sites) == count.count > 0
        assert sum(site.exposed_ms or 0 for site in sites) == pytest.approx(count.exposed_ms)
        assert sum(site.blocked_ms or 0 for site in sites) == pytest.approx(count.blocked_ms)
        assert all(not (site.file or "").startswith("/") for site in sites)


def test_the_routing_loop_is_named_where_it_is(kept: tuple[Store, RunRecord]) -> None:
    store, record = kept
    baseline, grouped = (audit.report for audit in store.audits(record.id))
    assert {site.phase for site in baseline.sites} >= {"forward", "recompute"}
    assert any("experts" in (site.module or "") for site in baseline.sites)
    assert baseline.findings
    assert grouped.syncs_per_step < baseline.syncs_per_step


def test_the_kept_timeline_audits_to_the_same_figures(
    kept: tuple[Store, RunRecord], tmp_path: Path
) -> None:
    store, record = kept
    counts = {sync.arm: sync for sync in record.syncs if sync.phase == "batch"}
    overlaps = {overlap.arm: overlap for overlap in record.overlap}
    assert record.traced_arms == record.audited_arms
    for arm in record.traced_arms:
        path = tmp_path / "trace.json.gz"
        path.write_bytes(store.trace(record, arm))
        report = audit_trace(path)
        assert report.syncs_per_step == counts[arm].count
        assert report.timeline.idle_ms == pytest.approx(overlaps[arm].idle_ms)
        assert report.timeline.overlap == pytest.approx(overlaps[arm].overlap)
