"""Cutting and mending the text of a trace: where its events are, and where one ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.audit.trace.limits import TraceLimits

_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_ARRAY_END = re.compile(rb"\}\s*\]")
_ARRAY_START = re.compile(rb"\s*:\s*(\S)?")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]"]', re.DOTALL)
_BARE_WORD = re.compile(rb"([:,\[]\s*)-?(?:nan|inf|infinity)\b", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb'\\(\\|["/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})?')


@dataclass(slots=True)
class Cut:
    """Where a buffer can be cut: whole events end at `end`, the rest begins at `rest`."""

    end: int
    rest: int
    closed: bool = False
    """The array of events ends here."""
    damaged: bool = False
    """What follows is no event."""
    spans: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EventList:
    """The text around the first bytes of the list of events."""

    head: bytes
    """What precedes the key `traceEvents`; empty where the file is a bare list."""
    opening: bytes
    """The key and the opening bracket."""
    rest: bytes
    """What has been read beyond it."""


def find_event_list(path: Path, blocks: Iterator[bytes], limits: TraceLimits) -> EventList:
    """Read blocks until the list of events begins. Raises `UsageError` where there is none."""
    buffer = b""
    position = depth = 0
    for block in blocks:
        buffer += block
        if not position:
            buffer = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
            if not buffer:
                continue
            if buffer[:1] == b"[":
                return EventList(b"", b"[", buffer[1:])
            if buffer[:1] != b"{":
                break
        for token in _TOKEN.finditer(buffer, position):
            mark = token.group()
            if mark == b'"':
                break
            if depth == 1 and mark == b'"traceEvents"':
                opening = _ARRAY_START.match(buffer, token.end())
                if opening is None or opening[1] is None:
                    break  # The next block shows what follows the key.
                if opening[1] == b"[":
                    end = opening.end()
                    return EventList(
                        buffer[: token.start()], buffer[token.start() : end], buffer[end:]
                    )
            depth += (mark in b"{[") - (mark in b"}]")
            position = token.end()
        if len(buffer) > limits.max_event_bytes:
            break
    raise UsageError(
        f"{path} is not a Kineto trace (no list called traceEvents found); give a .json or "
        ".json.gz file as torch.profiler's export_chrome_trace writes it"
    )


def last_boundary(buffer: bytes) -> Cut | None:
    window = 1 << 16
    while True:
        start = max(0, len(buffer) - window)
        last = None
        for match in _BOUNDARY.finditer(buffer, start):
            last = match
        if last is not None:
            return Cut(end=last.start() + 1, rest=last.end() - 1)
        if start == 0:
            return None
        window *= 8


def array_end(buffer: bytes) -> Cut | None:
    match = _ARRAY_END.search(buffer)
    if match is not None:
        return Cut(end=match.start() + 1, rest=match.end(), closed=True)
    if buffer[:64].lstrip().startswith(b"]"):
        return Cut(end=0, rest=buffer.index(b"]") + 1, closed=True)
    return None


def scan(buffer: bytes) -> Cut:
    """Cut `buffer` by reading its brackets and strings one by one."""
    cut = Cut(end=0, rest=0)
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
            cut.spans.append(token.span())
            cut.end = token.end()
    comma = buffer[cut.end : cut.end + 256].lstrip()
    cut.rest = cut.end + (buffer[cut.end :].index(b",") + 1 if comma[:1] == b"," else 0)
    return cut


def repair(text: bytes) -> bytes:
    """Mend what old profilers are known to write: bad UTF-8, bare `nan` and `inf`, and Windows
    paths with single backslashes."""
    text = text.decode("utf-8", "replace").encode()
    text = _BARE_WORD.sub(rb"\1null", text)
    return _BAD_ESCAPE.sub(lambda match: match[0] if match[1] else rb"\\", text)
