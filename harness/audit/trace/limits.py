"""How much a trace may ask of this machine."""

from __future__ import annotations

import msgspec


class TraceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one trace file. A file that passes one is refused, or read in part with a note.

    Memory use follows `chunk_bytes` and the number of events kept, not the size of the file.
    """

    chunk_bytes: int = 8 << 20
    """Decoded at once."""
    max_event_bytes: int = 64 << 20
    """Longest stretch of text without an event boundary, and longest header or trailer."""
    max_bytes: int = 32 << 30
    """Bytes of JSON read, after decompression; the rest of a longer file is left out."""
    max_expansion: int = 200
    """Highest decompressed size over compressed size. Kineto traces reach about 30."""
    expansion_free_bytes: int = 64 << 20
    """Decompressed bytes before `max_expansion` is looked at."""
    max_events: int = 50_000_000
    """Events kept (those that carry figures); the rest is left out."""
