"""Counts waits and copies by site while an audit runs; keeps no event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.audit.intended import intended_reason
from harness.audit.kinds import kind_in_library

if TYPE_CHECKING:
    from harness.audit.attribution import Attribution
    from harness.audit.frames import Point
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
    """Digest of the input -> module calls of the present step that worked on it."""
    same_input_in_modules: bool = False


@dataclass(frozen=True)
class CopyKey:
    """Copies that are summed up together."""

    direction: str
    memory: str
    blocking: bool


class Tally:
    """An observer that counts waits by site, while `recording`."""

    wants_every_op = False

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self.recording = False
        self.sites: dict[SiteKey, SiteCount] = {}
        self.copies: dict[CopyKey, tuple[int, int]] = {}
        """Copy -> (count, bytes)."""

    def on_event(self, event: OpEvent) -> None:
        """Count what this op waited for and copied."""
        if not self.recording:
            return
        if event.copy is not None:
            memory = {True: "pinned", False: "pageable", None: "device"}[event.copy.pinned]
            key = CopyKey(event.copy.direction, memory, event.copy.blocking)
            count, num_bytes = self.copies.get(key, (0, 0))
            self.copies[key] = (count + 1, num_bytes + event.copy.num_bytes)
        for wait in event.waits:
            self._count(event, wait)

    def on_stream_action(self, action: StreamAction) -> None:
        """Streams make nobody wait by themselves."""

    def end_step(self) -> None:
        """Inputs of different steps are not compared."""
        for site in self.sites.values():
            site.inputs.clear()

    def _count(self, event: OpEvent, wait: Wait) -> None:
        cause = self._attribution.explain()
        key = SiteKey(
            op=wait.op,
            kind=kind_in_library(cause.library, wait.kind),
            phase=event.phase,
            user=cause.user,
            library=cause.library,
            intended=intended_reason(),
        )
        site = self.sites.setdefault(key, SiteCount())
        site.calls += 1
        site.syncs += wait.syncs
        if event.copy is not None:
            site.num_bytes = (site.num_bytes or 0) + event.copy.num_bytes
        path = self._attribution.module_path(cause.module)
        if path is not None:
            site.modules.add(path)
        if event.input_digest is not None and cause.module_call:
            calls = site.inputs.setdefault(event.input_digest, set())
            calls.add(cause.module_call)
            site.same_input_in_modules |= len(calls) > 1
