"""What counts the syncs of an arm, on whatever device, and what it hands back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport
    from harness.record.records import Overlap, SyncCount
    from harness.workload import Workload


class SyncsSeen(NamedTuple):
    """What a probe saw of one arm."""

    syncs: tuple[SyncCount, ...] = ()
    overlap: tuple[Overlap, ...] = ()
    audit: AuditReport | None = None
    """The sites behind the counts, where the probe knows them."""
    trace: bytes | None = None
    """Gzipped Kineto trace of the steps it ran, where it has one."""


class SyncProbe(Protocol):
    """Counts the syncs and the overlap of the arm that is selected, by running steps of it."""

    def __call__(self, workload: Workload, arm: str) -> SyncsSeen: ...
