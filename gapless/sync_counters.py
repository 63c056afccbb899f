"""Counters of syncs: of a test, for the pytest fixture, and of an arm of a bench without a GPU.

Both count by the sync rules on the emulated device; on a GPU a test is counted by torch.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.audit.portable import portable
from harness.bench.arm_switch import attached, resolve_arms
from harness.bench.sync_probe import SyncsSeen
from harness.findings.answering import with_answers
from harness.record.records import PHASES, Phase, SyncCount
from harness.tables.audit_text import report_text
from optimizations.optimization_catalogue import answers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.audit.live.live_syncs import SyncRecorder
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


class SyncAudit(Protocol):
    """Counts while it is open."""

    @property
    def count(self) -> int:
        """Times the host has waited for the device so far; intended waits do not count."""
        ...

    @property
    def has_judged(self) -> bool:
        """Whether anything ran on the device, so that a count of 0 says something."""
        ...

    def explain(self) -> str:
        """Where it waited, for people."""
        ...


class EmulatedSyncAudit:
    """Counts by the sync rules, on the emulated device."""

    def __init__(self, audit: EmulatedAudit) -> None:
        self._audit = audit

    @property
    def count(self) -> int:
        """Times the host has waited for the device so far; intended waits do not count."""
        return self._audit.num_syncs

    @property
    def report(self) -> AuditReport:
        """What was found so far."""
        return self._audit.report_so_far()

    @property
    def has_judged(self) -> bool:
        """Whether an op ran on the emulated device."""
        return self._audit.num_ops > 0

    def explain(self) -> str:
        """Where it waited, as the terminal report has it."""
        return report_text(with_answers(self.report, answers()))


class RecordedSyncAudit:
    """Counts by torch's callbacks and warnings, on a GPU."""

    def __init__(self, recorder: SyncRecorder) -> None:
        self._recorder = recorder

    @property
    def count(self) -> int:
        """The larger of the two counts: each sees waits that the other does not."""
        return max(self._recorder.num_callbacks, self._recorder.num_warnings)

    @property
    def has_judged(self) -> bool:
        """Always: torch announces every sync of a real GPU."""
        return True

    def explain(self) -> str:
        """One line for each place."""
        return "\n".join(
            f"{line.file}:{line.line} in {line.function}" for line in self._recorder.lines()
        )


@contextmanager
def open_sync_audit() -> Iterator[SyncAudit]:
    """Count from here to the end of the block."""
    import torch

    if torch.cuda.is_available():
        from harness.audit.live.live_syncs import SyncRecorder

        with SyncRecorder() as recorder:
            yield RecordedSyncAudit(recorder)
        return
    with EmulatedAudit(target="test", boundary="explicit", skip=0) as audit:
        audit.record(True)
        yield EmulatedSyncAudit(audit)


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
        from gapless.factory import build

        audit = EmulatedAudit(target=arm, boundary="explicit", steps=1, skip=1)
        with audit:
            audit.record(False)
            workload, optimizations = build(self._spec)
            choices = resolve_arms(self._arms, optimizations)
            with attached(choices, optimizations, workload.model) as switch:
                switch.select(arm)

                def step() -> None:
                    workload.forward()
                    workload.backward()
                    workload.optimizer_step()

                audit.run_steps(step)
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
