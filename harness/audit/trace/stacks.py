"""What encloses a moment on a thread: ops, annotations and Python frames, outermost first."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Int32, Int64, Spans, Trace

_ROUNDING_NS = 1_000
"""Old traces hold whole microseconds, so that a child may end one after its parent."""


class FrameKind(enum.IntEnum):
    """Where a frame comes from. Of frames with equal times the lower kind encloses the higher."""

    PYTHON = 0
    ANNOTATION = 1
    OP = 2


class Frame(NamedTuple):
    """One enclosing row of the trace."""

    kind: FrameKind
    row: int
    """Index in `Trace.python`, `.annotations` or `.ops`."""
    name: str


Stack = tuple[Frame, ...]


def _tables(trace: Trace) -> tuple[tuple[FrameKind, Spans], ...]:
    return (
        (FrameKind.PYTHON, trace.python),
        (FrameKind.ANNOTATION, trace.annotations),
        (FrameKind.OP, trace.ops),
    )


def enclosing_stacks(trace: Trace, thread: Int32, start: Int64, end: Int64) -> list[Stack]:
    """The stack around each interval, in the order given. Arrays have one entry a query."""
    stacks: list[Stack] = [()] * len(start)
    for number in np.unique(thread):
        queries = np.flatnonzero(thread == number)
        queries = queries[np.argsort(start[queries], kind="stable")]
        rows = _enclosing_rows(trace, int(number), start[queries])
        for query, stack in zip(queries, _walk(rows, start[queries], end[queries]), strict=True):
            stacks[query] = stack
    return stacks


_Row = tuple[int, int, Frame]


def _enclosing_rows(trace: Trace, thread: int, moments: Int64) -> list[_Row]:
    """Rows of the thread that contain at least one of the sorted moments, outer before inner."""
    found: list[_Row] = []
    for kind, table in _tables(trace):
        rows = np.flatnonzero(table.thread == thread)
        first = np.searchsorted(moments, table.start[rows], side="left")
        last = np.searchsorted(moments, table.end[rows], side="right")
        rows = rows[last > first]
        found.extend(
            (start, end, Frame(kind, row, trace.names[name]))
            for start, end, row, name in zip(
                table.start[rows].tolist(),
                table.end[rows].tolist(),
                rows.tolist(),
                table.name[rows].tolist(),
                strict=True,
            )
        )
    found.sort(key=lambda row: (row[0], -row[1], row[2].kind, row[2].row))
    return found


def _walk(rows: Sequence[_Row], starts: Int64, ends: Int64) -> list[Stack]:
    stacks: list[Stack] = []
    open_rows: list[_Row] = []
    position = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while position < len(rows) and rows[position][0] <= start:
            row = rows[position]
            while open_rows and open_rows[-1][1] <= row[0]:
                open_rows.pop()
            open_rows.append(row)
            position += 1
        while open_rows and open_rows[-1][1] < start:
            open_rows.pop()
        stacks.append(
            tuple(row[2] for row in open_rows if row[1] >= start and row[1] + _ROUNDING_NS >= end)
        )
    return stacks
