"""Counts an arm's syncs where there is no GPU: the same step on the emulated one, by the rules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gapless.factory import build
from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.audit.portable import portable
from harness.bench.arm_switch import attached, resolve_arms
from harness.bench.sync_probe import SyncsSeen
from harness.record.records import PHASES, Phase, SyncCount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.bench.plan import BenchPlan
    from harness.record.audit_report import AuditReport
    from harness.workload import Workload

LARGEST_TIME_S = 90.0
"""After this much time in one run, the remaining arms are not counted."""

_PHASE_OF: Mapping[str, Phase] = {
    "data": "forward",
    "forward": "forward",
    "recompute": "backward",
    "backward": "backward",
    "optimizer": "optimizer",
}
"""Phase of the audit -> part of the timed step it runs in."""


class EmulatedSyncProbe:
    """Audits one step of each arm of a plan, on a workload of its own."""

    def __init__(self, plan: BenchPlan) -> None:
        options: dict[str, Any] = {**plan.spec["options"], "device": "cuda"}
        self._spec = {**plan.spec, "options": options}
        self._arms = plan.arms
        self._spent_s = 0.0

    def __call__(self, workload: Workload, arm: str) -> SyncsSeen:
        if self._spent_s > LARGEST_TIME_S:
            return SyncsSeen()
        began_s = time.monotonic()
        report = self._audit(arm)
        self._spent_s += time.monotonic() - began_s
        return SyncsSeen(sync_counts(report, arm), audit=portable(report))

    def _audit(self, arm: str) -> AuditReport:
        audit = EmulatedAudit(target=arm, boundary="explicit", steps=1, skip=1)
        with audit:
            audit.record(False)
            workload, optimizations = build(self._spec)
            choices = resolve_arms(self._arms, optimizations)
            with attached(choices, optimizations, workload.model) as switch:
                switch.select(arm)
                for _ in range(2):
                    workload.forward()
                    workload.backward()
                    workload.optimizer_step()
                    audit.mark_step()
                audit.record(False)
        return audit.report


def sync_counts(report: AuditReport, arm: str) -> tuple[SyncCount, ...]:
    """Syncs per step by the parts that a bench times, and of the whole step."""
    counts = dict.fromkeys(PHASES, 0.0)
    for site in report.sites:
        syncs = site.count_per_step * site.syncs_per_call
        counts[_PHASE_OF[site.phase]] += syncs
        counts["batch"] += syncs
    return tuple(
        SyncCount(arm=arm, phase=phase, count=count, source="modelled", method="emulated")
        for phase, count in counts.items()
    )
