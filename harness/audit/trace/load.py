"""From a path to a `Trace`."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.audit.trace.limits import TraceLimits
from harness.audit.trace.reader import EventReader
from harness.audit.trace.trace_builder import TraceBuilder
from harness.audit.trace.trace_source import ByteSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.audit.trace.columns import Trace
    from harness.record.audit_report import Times


@contextmanager
def _without_cyclic_gc() -> Iterator[None]:
    """Decoding makes millions of short-lived objects and no cycles; the collector only costs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_trace(
    path: Path,
    *,
    limits: TraceLimits | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Read one Kineto trace, plain or gzip.

    `on_progress` gets file bytes read and the size of the file. Raises `UsageError` where the file
    cannot be read or is no trace; what is damaged inside a trace is left out and noted.
    """
    limits = limits or TraceLimits()
    reader = EventReader(ByteSource(path, limits, on_progress))
    builder = TraceBuilder(max_events=limits.max_events)
    with _without_cyclic_gc():
        for events in reader.batches():
            builder.add(events)
            if builder.full:
                break
        return builder.build(reader.metadata, reader.notes)


def times_of(trace: Trace) -> Times:
    """Whether the trace was recorded by a clock, or written from the emulator's model of one."""
    return "modelled" if trace.metadata.get("source") == "modelled" else "measured"
