"""Counts syncs and copies by site while an audit runs; keeps no event."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness.audit.emulated.intended import intended_reason
from harness.audit.emulated.site_counts import CopyKey, Counts, SiteCount, SiteKey
from harness.audit.emulated.site_kinds import kind_in_library

if TYPE_CHECKING:
    from harness.audit.emulated.attribution import Attribution
    from harness.audit.emulated.unread_copies import UnreadCopies
    from harness.emulator.device_clock import DeviceClock
    from harness.emulator.tensors.op_events import OpEvent, Wait
    from harness.emulator.tensors.stream_book import StreamAction


class Tally:
    """An observer that counts syncs by site, while `recording`."""

    wants_every_op = False

    def __init__(
        self,
        attribution: Attribution,
        clock: DeviceClock | None = None,
        unread: UnreadCopies | None = None,
    ) -> None:
        """`clock` sees each event first and numbers its syncs; `unread` follows the results of
        copies."""
        self._attribution = attribution
        self._clock = clock
        self._unread = unread
        self.recording = False
        self.counts = Counts()
        """What was counted since the last `take`."""

    def on_event(self, event: OpEvent) -> None:
        """Count the syncs and copies of this op."""
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
        """What a stream does is no sync of the host."""

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
