"""Which finding stands first, and that no sync is lost or counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from harness.audit.emulated.emulated_audit import EmulatedAudit, audit_callable
from harness.findings.finding_catalogue import with_findings
from harness.record.audit_report import AuditReport, Site, from_json, to_json
from harness.record.sync_kinds import SyncKind
from harness.tables.finding_text import finding_lines

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.findings.test_finding_kinds import data


def site(**changed: Any) -> Site:
    fields = {
        "op": "aten::_local_scalar_dense", "kind": SyncKind.SCALAR_READ, "phase": "forward",
        "count_per_step": 1.0, "syncs_per_call": 1.0,
    }  # fmt: skip
    return Site(**(fields | changed))


def report(*sites: Site, **changed: Any) -> AuditReport:
    fields = {
        "source": "trace", "target": "t", "device": "GPU", "steps": 2,
        "syncs_per_step": float(len(sites)), "sites": sites,
    }  # fmt: skip
    return AuditReport(**(fields | changed))


def test_time_ranks_before_count() -> None:
    from harness.record.audit_report import AuditTimeline

    timed = report(
        site(module="often", count_per_step=100.0, exposed_ms=0.001),
        site(module="rarely", exposed_ms=5.0),
        timeline=AuditTimeline(span_ms=100.0),
    )
    first, second = with_findings(timed).findings
    assert (first.module, first.severity, first.ranked_by) == ("rarely", "high", "measured")
    assert (second.module, second.severity) == ("often", "low")


def test_without_time_the_count_decides_and_says_so() -> None:
    first, second = with_findings(
        report(site(module="a"), site(module="b", count_per_step=8.0))
    ).findings
    assert (first.module, first.severity, first.ranked_by) == ("b", "high", "count")
    assert second.severity == "low"


def test_no_wait_is_lost_or_counted_twice() -> None:
    found = with_findings(report(*(site(kind=kind, module=kind) for kind in SyncKind))).findings
    assert sum(finding.syncs_per_step for finding in found) == len(SyncKind)


def test_reads_that_repeat_within_one_call_of_a_trace_are_a_polling_loop() -> None:
    from harness.record.trace_details import PollingLoop, TraceDetails

    polling = PollingLoop(
        site=1, scope="Moe_0", calls=2, reads_per_call=8.0, max_reads_per_call=8, blocked_ms=1.0,
        exposed_ms=1.0,
    )  # fmt: skip
    traced = report(site(module="a"), site(module="b"), trace=TraceDetails(polling=(polling,)))

    assert {(f.kind, f.module) for f in with_findings(traced).findings} == {
        ("scalar-read", "a"),
        ("polling-loop", "b"),
    }


@pytest.mark.parametrize(
    ("on_compute", "exposed_ms", "kinds"),
    [(6, 20.0, ["serialized-copy"]), (0, 20.0, []), (6, 0.1, [])],
)
def test_copies_that_compute_stands_behind(
    on_compute: int, exposed_ms: float, kinds: list[str]
) -> None:
    from harness.record.audit_report import AuditTimeline
    from harness.record.trace_details import TraceDetails

    traced = report(
        timeline=AuditTimeline(span_ms=100.0),
        trace=TraceDetails(copies_on_compute_stream=on_compute, copy_exposed_ms=exposed_ms),
    )
    assert [finding.kind for finding in with_findings(traced).findings] == kinds


def layered(dims: int, mask_of: Callable[[torch.Tensor], torch.Tensor]) -> AuditReport:
    """A step of six layers that each make their own mask."""

    def build() -> Callable[[], None]:
        layers = nn.ModuleList([nn.Linear(dims, dims) for _ in range(6)]).to("cuda")
        x = data(4, dims)

        def step() -> None:
            h = x
            for layer in layers:
                h = layer(h) + mask_of(h)
            h.sum().backward()

        return step

    return audit_callable(build, build=True, steps=2, target="layers")


def test_work_done_again_without_a_wait_ranks_by_its_launches() -> None:
    def mask_of(h: torch.Tensor) -> torch.Tensor:
        return torch.triu(torch.full((4, h.shape[1]), -1.0, device=h.device), 1)

    (finding,) = [f for f in layered(8, mask_of).findings if f.kind == "rebuilt-metadata"]
    assert finding.launch_ms == pytest.approx(5 * 2 * 0.008)
    assert (finding.exposed_ms, finding.ranked_by) == (None, "modelled")
    assert finding.severity == "high"
    assert "by modelled launch time" in next(iter(finding_lines(finding, str)))


def test_a_recurrent_layer_of_torch_s_own_repeats_nothing() -> None:
    def build() -> Callable[[], None]:
        layer, x = nn.GRU(4, 4, batch_first=True).to("cuda"), data(2, 3, 4)

        def step() -> None:
            with torch.no_grad():
                for _ in range(5):
                    layer(x + torch.randn_like(x))

        return step

    report = audit_callable(build, build=True)
    assert report.redundant_groups == ()


def test_findings_survive_json() -> None:
    with EmulatedAudit(boundary="explicit") as running:
        F.relu(torch.ones(2, device="cuda")).sum().item()
    assert running.report.findings
    assert from_json(to_json(running.report)) == running.report
