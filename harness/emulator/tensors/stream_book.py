"""Streams and events of the emulated device: who ran where, and who waits for what.

There is no time here. A clock that watches the device adds it: each stream is a queue of op
indices, each event a point in one queue, each wait an edge between queues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

StreamActionKind = Literal[
    "record",
    "wait",
    "record_tensor",
    "synchronize_device",
    "synchronize_stream",
    "synchronize_event",
]


@dataclass(frozen=True)
class StreamAction:
    """One call on a stream or event."""

    kind: StreamActionKind
    op_index: int
    """Ops dispatched before this call."""
    stream: int
    """For `record` the stream whose end is marked, for `wait` the stream that waits, for
    `synchronize_stream` the one the host waits for."""
    event: int | None = None
    storage: int | None = None
    """For `record_tensor`: the storage that must outlive the stream's present work."""


@dataclass
class StreamBook:
    """All streams and events of one device."""

    current: int = 0
    """Number of the stream that ops go to now; 0 is the default stream."""
    num_streams: int = 1
    num_events: int = 0
    ops_on: dict[int, int] = field(default_factory=dict)
    """Stream -> ops that ran on it."""

    def new_stream(self) -> int:
        """Number of a new stream."""
        self.num_streams += 1
        return self.num_streams - 1

    def new_event(self) -> int:
        """Number of a new event."""
        self.num_events += 1
        return self.num_events - 1
