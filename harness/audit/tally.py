"""Counts waits and copies by site while an audit runs; keeps no event."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from harness.audit.intended import intended_reason
from harness.audit.kinds import kind_in_library

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.audit.attribution import Attribution
    from harness.audit.frames import Point
    from harness.audit.unread_copies import UnreadCopies
    from harness.emulator.clock import DeviceClock
    from harness.emulator.clock_figures import WaitCost
    from harness.emulator.events import AuditedPhase, OpEvent, Wait
    from harness.emulator.streams import StreamAction


@dataclass(frozen=True)
class SiteKey:
    """What makes one site. Points of the same line are merged when the report is made."""

    op: str
    kind: str
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
    """Numbers of its waits on the virtual clock."""
    blocked_ns: int | None = None
    exposed_ns: int | None = None
    unread: int = 0
    """Copies whose result was gone within the step before anything read it."""


@dataclass(frozen=True)
class CopyKey:
    """Copies that are summed up together."""

    direction: str
    memory: str
    blocking: bool


@dataclass
class Counts:
    """Waits and copies of a stretch of the run."""

    sites: dict[SiteKey, SiteCount] = field(default_factory=dict)
    copies: dict[CopyKey, tuple[int, int]] = field(default_factory=dict)
    """Copy -> (count, bytes)."""

    @property
    def num_syncs(self) -> int:
        """Syncs of all sites that are not intended."""
        return sum(count.syncs for key, count in self.sites.items() if key.intended is None)

    def set_costs(self, waits: Iterable[WaitCost]) -> None:
        """Give each site what its waits cost by the virtual clock."""
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


class Tally:
    """An observer that counts waits by site, while `recording`."""

    wants_every_op = False

    def __init__(
        self,
        attribution: Attribution,
        clock: DeviceClock | None = None,
        unread: UnreadCopies | None = None,
    ) -> None:
        """`clock` has seen each event before and gives its waits their numbers; `unread` follows
        what copies make."""
        self._attribution = attribution
        self._clock = clock
        self._unread = unread
        self.recording = False
        self.counts = Counts()
        """What was counted since the last `take`."""

    def on_event(self, event: OpEvent) -> None:
        """Count what this op waited for and copied."""
        if not self.recording:
            return
        if event.copy is not None:
            memory = {True: "pinned", False: "pageable", None: "device"}[event.copy.pinned]
            key = CopyKey(event.copy.direction, memory, event.copy.blocking)
            count, num_bytes = self.counts.copies.get(key, (0, 0))
            self.counts.copies[key] = (count + 1, num_bytes + event.copy.num_bytes)
        numbers = iter(()) if self._clock is None else iter(self._clock.latest_sites)
        for wait in event.waits:
            site = self._count(event, wait)
            site.clock_sites.extend(islice(numbers, wait.syncs))
            if self._unread is not None and event.copy is not None:
                self._unread.follow(event.copy, site)

    def on_stream_action(self, action: StreamAction) -> None:
        """Streams make nobody wait by themselves."""

    def take(self) -> Counts:
        """What was counted since the last call. Inputs are compared within one such stretch."""
        taken, self.counts = self.counts, Counts()
        if self._unread is not None:
            self._unread.forget()
        return taken

    def _count(self, event: OpEvent, wait: Wait) -> SiteCount:
        cause = self._attribution.explain()
        key = SiteKey(
            op=wait.op,
            kind=kind_in_library(cause.library, wait.kind),
            phase=event.phase,
            user=cause.user,
            library=cause.library,
            intended=intended_reason(),
        )
        site = self.counts.sites.setdefault(key, SiteCount())
        site.calls += 1
        site.syncs += wait.syncs
        if event.copy is not None:
            site.num_bytes = (site.num_bytes or 0) + event.copy.num_bytes
        path = self._attribution.module_path(cause.module)
        if path is not None:
            site.modules.add(path)
        if event.input_lineage is not None and cause.module_call:
            calls = site.inputs.setdefault(event.input_lineage, set())
            calls.add(cause.module_call)
            site.same_input_in_modules |= len(calls) > 1
        return site
