"""Events of a trace file in batches, at a memory use that does not grow with the file.

The text is cut where one event ends and the next begins. A cut found by pattern may be wrong (the
pattern can stand inside a string), so it is never trusted: if everything before it decodes as a
list of whole values, it *is* a boundary, because JSON reads in only one way. If it does not, a
token scanner finds the true boundaries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from harness.audit.trace.trace_events import (
    LARGEST_EXACT_US,
    AnyEvent,
    Event,
    ExactEvent,
    coerce_event,
)
from harness.audit.trace.trace_text import (
    Cut,
    array_end,
    find_event_list,
    last_boundary,
    repair,
    scan,
)
from harness.counts import counted
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.audit.trace.trace_source import ByteSource


_DECODE = msgspec.json.Decoder(list[Event])
_DECODE_EXACT = msgspec.json.Decoder(list[ExactEvent])
_DECODE_ONE = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class EventReader:
    """Reads one trace. `metadata`, `notes` and the counts are complete after `batches` ends."""

    source: ByteSource
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_skipped: int = 0
    """Entries of `traceEvents` that are no events."""
    _exact: bool = False

    def batches(self) -> Iterator[Sequence[AnyEvent]]:
        """Lists of events in file order. Raises `UsageError` where the file is no trace."""
        blocks = self.source.blocks()
        found = find_event_list(self.source.path, blocks, self.source.limits)
        head, buffer = found.head, found.rest
        closed = False
        read_any = False
        for block in blocks:
            events, buffer, closed = self._take(buffer)
            if events:
                read_any = True
                yield events
            if closed:
                buffer += block
                break
            if len(buffer) > self.source.limits.max_event_bytes:
                self._too_long(read_any)
                buffer = b""
                break
            buffer += block
        while not closed and buffer:
            events, buffer, closed = self._take(buffer)
            if events:
                yield events
            elif not closed:
                break
        if closed:
            self._read_metadata(head, buffer, blocks)
        else:
            self.notes.append(
                "the trace ends before its list of events does; what is there was read"
            )
            self._read_metadata(head, b"}" if head.startswith(b"{") else b"", iter(()))
        self.notes[:0] = self.source.notes
        if self.num_skipped:
            self.notes.append(f"left out {counted(self.num_skipped, 'damaged event')}")

    def _too_long(self, read_any: bool) -> None:
        limit = self.source.limits.max_event_bytes
        if not read_any:
            raise UsageError(
                f"{self.source.path} holds no event within {limit:,} bytes; "
                "give a trace as torch.profiler wrote it"
            )
        self.notes.append(f"an event longer than {limit:,} bytes and all that follows was left out")

    # --- events ---

    def _take(self, buffer: bytes) -> tuple[Sequence[AnyEvent], bytes, bool]:
        """Whole events at the start of `buffer`, what is left, and whether the array ended."""
        for cut in (last_boundary(buffer), array_end(buffer)):
            if cut is None:
                continue
            try:
                events = self._decode(buffer[: cut.end])
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                continue
            return events, buffer[cut.rest :], cut.closed
        cut = scan(buffer)
        if cut.damaged:
            self.notes.append("the list of events is damaged; what precedes the damage was read")
        events = self._decode_carefully(buffer, cut) if cut.spans else []
        return events, b"" if cut.damaged else buffer[cut.rest :], cut.closed

    def _decode(self, text: bytes) -> Sequence[AnyEvent]:
        text = b"[" + text + b"]"
        if self._exact:
            return _DECODE_EXACT.decode(text)
        events = _DECODE.decode(text)
        for event in events[:: max(1, len(events) // 16)]:
            if type(event.ts) is float and event.ts >= LARGEST_EXACT_US:
                self._exact = True
                return _DECODE_EXACT.decode(text)
        return events

    def _decode_carefully(self, buffer: bytes, cut: Cut) -> Sequence[AnyEvent]:
        text = buffer[: cut.end]
        try:
            return self._decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
        repaired = repair(text)
        try:
            return self._decode(repaired)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
        events: list[AnyEvent] = []
        for start, end in cut.spans:
            event = _decode_one(repair(buffer[start:end]))
            if event is None:
                self.num_skipped += 1
            else:
                events.append(event)
        return events

    # --- after the events ---

    def _read_metadata(self, head: bytes, tail: bytes, blocks: Iterator[bytes]) -> None:
        if not head:
            return
        for block in blocks:
            tail += block
            if len(tail) > self.source.limits.max_event_bytes:
                self.notes.append("the metadata after the events is too long and was left out")
                tail = b"}"
                break
        text = head + b'"traceEvents":[]' + tail
        try:
            metadata = msgspec.json.decode(repair(text))
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            self.notes.append("the metadata of the trace cannot be read; device names are unknown")
            return
        if isinstance(metadata, dict):
            self.metadata = metadata


def _decode_one(text: bytes) -> Event | None:
    try:
        return _DECODE_ONE.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return coerce_event(text)
