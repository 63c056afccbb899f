"""Events of a trace file in batches, at a memory use that does not grow with the file.

The text is cut where one event ends and the next begins. A cut found by pattern may be wrong (the
pattern can stand inside a string), so it is never trusted: if everything before it decodes as a
list of whole values, it *is* a boundary, because JSON reads in only one way. If it does not, a
token scanner finds the true boundaries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from harness.audit.trace.events import (
    LARGEST_EXACT_US,
    AnyEvent,
    Event,
    ExactEvent,
    coerce_event,
)
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.audit.trace.source import ByteSource

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_ARRAY_END = re.compile(rb"\}\s*\]")
_EVENTS_KEY = re.compile(rb'"traceEvents"')
_ARRAY_START = re.compile(rb"\s*:\s*(\S)?")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]"]', re.DOTALL)
_BARE_WORD = re.compile(rb"([:,\[]\s*)-?(?:nan|inf|infinity)\b", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb'\\(\\|["/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})?')

_DECODE = msgspec.json.Decoder(list[Event])
_DECODE_EXACT = msgspec.json.Decoder(list[ExactEvent])
_DECODE_ONE = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class _Cut:
    """Where a buffer can be cut: whole events end at `end`, the rest begins at `rest`."""

    end: int
    rest: int
    closed: bool = False
    """The array of events ends here."""
    damaged: bool = False
    """What follows is no event."""
    spans: list[tuple[int, int]] = field(default_factory=list)


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
        head, buffer = self._find_events(blocks)
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
            self.notes.append(f"{self.num_skipped:,} damaged events were left out")

    def _too_long(self, read_any: bool) -> None:
        limit = self.source.limits.max_event_bytes
        if not read_any:
            raise UsageError(
                f"{self.source.path} holds no event within {limit:,} bytes; "
                "give a trace as torch.profiler wrote it"
            )
        self.notes.append(f"an event longer than {limit:,} bytes and all that follows was left out")

    # --- before the events ---

    def _find_events(self, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """The text before the array of events, and the buffer that starts inside it."""
        path = self.source.path
        buffer = b""
        position = depth = 0
        for block in blocks:
            buffer += block
            if not position:
                buffer = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
                if not buffer:
                    continue
                if buffer[:1] == b"[":
                    return b"", buffer[1:]
                if buffer[:1] != b"{":
                    break
            key = None
            for token in _TOKEN.finditer(buffer, position):
                mark = token.group()
                if mark == b'"':
                    break
                position = token.end()
                if mark in b"{[":
                    depth += 1
                elif mark in b"}]":
                    depth -= 1
                elif depth == 1 and mark == b'"traceEvents"':
                    opening = _ARRAY_START.match(buffer, position)
                    if opening is not None:
                        key = token.start()
                        if opening[1] == b"[":
                            return buffer[:key], buffer[opening.end() :]
                        if opening[1] is None:
                            position = key
                        break
            if len(buffer) > self.source.limits.max_event_bytes:
                break
        raise UsageError(
            f"{path} is not a Kineto trace (no list called traceEvents found); give a .json or "
            ".json.gz file as torch.profiler's export_chrome_trace writes it"
        )

    # --- events ---

    def _take(self, buffer: bytes) -> tuple[Sequence[AnyEvent], bytes, bool]:
        """Whole events at the start of `buffer`, what is left, and whether the array ended."""
        for cut in (_last_boundary(buffer), _array_end(buffer)):
            if cut is None:
                continue
            try:
                events = self._decode(buffer[: cut.end])
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                continue
            return events, buffer[cut.rest :], cut.closed
        cut = _scan(buffer)
        if cut.damaged:
            self.notes.append("the list of events is damaged; what precedes the damage was read")
        events = self._decode_carefully(buffer, cut) if cut.spans else []
        return events, b"" if cut.damaged else buffer[cut.rest :], cut.closed

    def _decode(self, text: bytes) -> Sequence[AnyEvent]:
        text = b"[" + text + b"]"
        if self._exact:
            return _DECODE_EXACT.decode(text)
        events = _DECODE.decode(text)
        for event in events[:: max(1, len(events) - 1)]:
            if type(event.ts) is float and event.ts >= LARGEST_EXACT_US:
                self._exact = True
                return _DECODE_EXACT.decode(text)
        return events

    def _decode_carefully(self, buffer: bytes, cut: _Cut) -> Sequence[AnyEvent]:
        text = buffer[: cut.end]
        try:
            return self._decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
        repaired = _repair(text)
        try:
            return self._decode(repaired)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            pass
        events: list[AnyEvent] = []
        for start, end in cut.spans:
            event = _decode_one(_repair(buffer[start:end]))
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
            metadata = msgspec.json.decode(_repair(text))
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            self.notes.append("the metadata of the trace cannot be read; device names are unknown")
            return
        if isinstance(metadata, dict):
            self.metadata = metadata


def _last_boundary(buffer: bytes) -> _Cut | None:
    window = 1 << 16
    while True:
        start = max(0, len(buffer) - window)
        last = None
        for match in _BOUNDARY.finditer(buffer, start):
            last = match
        if last is not None:
            return _Cut(end=last.start() + 1, rest=last.end() - 1)
        if start == 0:
            return None
        window *= 8


def _array_end(buffer: bytes) -> _Cut | None:
    match = _ARRAY_END.search(buffer)
    if match is not None:
        return _Cut(end=match.start() + 1, rest=match.end(), closed=True)
    if buffer[:64].lstrip().startswith(b"]"):
        return _Cut(end=0, rest=buffer.index(b"]") + 1, closed=True)
    return None


def _scan(buffer: bytes) -> _Cut:
    """Cut `buffer` by reading its brackets and strings one by one."""
    cut = _Cut(end=0, rest=0)
    depth = 0
    start = 0
    for token in _TOKEN.finditer(buffer):
        mark = token.group()
        if mark == b'"':
            break
        if mark in b"{[":
            if depth == 0:
                start = token.start()
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                cut.spans.append((start, token.end()))
                cut.end = token.end()
            elif depth < 0:
                cut.closed = mark == b"]"
                cut.damaged = not cut.closed
                cut.rest = token.end()
                return cut
        elif depth == 0:
            cut.damaged = True
            break
    comma = buffer[cut.end : cut.end + 256].lstrip()
    cut.rest = cut.end + (buffer[cut.end :].index(b",") + 1 if comma[:1] == b"," else 0)
    return cut


def _repair(text: bytes) -> bytes:
    """Mend what old profilers are known to write: bad UTF-8, bare `nan` and `inf`, and Windows
    paths with single backslashes."""
    text = text.decode("utf-8", "replace").encode()
    text = _BARE_WORD.sub(rb"\1null", text)
    return _BAD_ESCAPE.sub(lambda match: match[0] if match[1] else rb"\\", text)


def _decode_one(text: bytes) -> Event | None:
    try:
        return _DECODE_ONE.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return coerce_event(text)
