"""What a tally counts: syncs by site and copies by kind, with what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.audit.frames import Point
    from harness.clock.clock_figures import WaitCost
    from harness.emulator.tensors.op_events import AuditedPhase
    from harness.record.sync_kinds import SyncKind


@dataclass(frozen=True)
class SiteKey:
    """What makes one site. Points of the same line are merged when the report is made."""

    op: str
    kind: SyncKind
    phase: AuditedPhase
    user: Point | None
    library: Point | None
    intended: str | None


@dataclass
class SiteCount:
    """How often one site waited."""

    calls: int = 0
    syncs: int = 0
    num_bytes: int | None = None
    modules: set[str] = field(default_factory=set)
    inputs: dict[int, set[int]] = field(default_factory=dict)
    """Lineage of the input -> module calls of the present step that worked on it."""
    same_input_in_modules: bool = False
    clock_sites: list[int] = field(default_factory=list)
    """Numbers of its syncs on the virtual clock."""
    blocked_ns: int | None = None
    exposed_ns: int | None = None
    unread: int = 0
    """Copies whose result was freed within the step before anything read it."""


@dataclass(frozen=True)
class CopyKey:
    """Copies that are summed up together."""

    direction: str
    memory: str
    blocking: bool


@dataclass
class Counts:
    """Syncs and copies of a part of the run."""

    sites: dict[SiteKey, SiteCount] = field(default_factory=dict)
    copies: dict[CopyKey, tuple[int, int]] = field(default_factory=dict)
    """Copy -> (count, bytes)."""

    @property
    def num_syncs(self) -> int:
        """Syncs of all sites that are not intended."""
        return sum(count.syncs for key, count in self.sites.items() if key.intended is None)

    def set_costs(self, waits: Iterable[WaitCost]) -> None:
        """Give each site what its syncs cost by the virtual clock."""
        costs = {cost.wait.site: cost for cost in waits}
        for count in self.sites.values():
            known = [costs[site] for site in count.clock_sites if site in costs]
            count.blocked_ns = sum(cost.blocked_ns for cost in known)
            count.exposed_ns = sum(cost.exposed_ns for cost in known)

    def add(self, other: Counts) -> None:
        """Count what `other` counted, too."""
        for key, count in other.sites.items():
            mine = self.sites.setdefault(key, SiteCount())
            mine.calls += count.calls
            mine.syncs += count.syncs
            if count.num_bytes is not None:
                mine.num_bytes = (mine.num_bytes or 0) + count.num_bytes
            mine.modules |= count.modules
            mine.same_input_in_modules |= count.same_input_in_modules
            mine.clock_sites += count.clock_sites
            if count.blocked_ns is not None and count.exposed_ns is not None:
                mine.blocked_ns = (mine.blocked_ns or 0) + count.blocked_ns
                mine.exposed_ns = (mine.exposed_ns or 0) + count.exposed_ns
            mine.unread += count.unread
        for copy, (number, num_bytes) in other.copies.items():
            before, bytes_before = self.copies.get(copy, (0, 0))
            self.copies[copy] = (before + number, bytes_before + num_bytes)
