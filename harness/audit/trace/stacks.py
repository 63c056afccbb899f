"""What encloses a moment on a thread: ops, annotations and Python frames, outermost first."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Int32, Int64, Spans, Trace

_MAX_DEPTH = 512
"""Innermost frames looked at; a deeper stack is damage or an attack."""
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
    if not len(start):
        return stacks
    tables = [(kind, table, RowsByThread(table.thread)) for kind, table in _tables(trace)]
    queries_of = RowsByThread(thread)
    for number in np.unique(thread).tolist():
        queries = queries_of[number]
        queries = queries[np.argsort(start[queries], kind="stable")]
        rows: list[_Row] = []
        for kind, table, by_thread in tables:
            rows += _enclosing_rows(trace, kind, table, by_thread[number], start[queries])
        rows.sort(key=lambda row: (row[0], -row[1], row[2].kind, row[2].row))
        for query, stack in zip(queries, _walk(rows, start[queries], end[queries]), strict=True):
            stacks[query] = stack
    return stacks


class RowsByThread:
    """Row numbers of a table by thread, in table order."""

    def __init__(self, thread: Int32) -> None:
        self._order = np.argsort(thread, kind="stable")
        self._sorted = thread[self._order]

    def __getitem__(self, thread: int) -> Int64:
        first, last = np.searchsorted(self._sorted, (thread, thread + 1))
        rows: Int64 = self._order[first:last]
        return rows


_Row = tuple[int, int, Frame]


def _enclosing_rows(
    trace: Trace, kind: FrameKind, table: Spans, rows: Int64, moments: Int64
) -> list[_Row]:
    """Those of the rows that contain at least one of the sorted moments."""
    first = np.searchsorted(moments, table.start[rows], side="left")
    last = np.searchsorted(moments, table.end[rows], side="right")
    rows = rows[last > first]
    return [
        (start, end, Frame(kind, row, trace.names[name]))
        for start, end, row, name in zip(
            table.start[rows].tolist(),
            table.end[rows].tolist(),
            rows.tolist(),
            table.name[rows].tolist(),
            strict=True,
        )
    ]


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
            tuple(
                row[2]
                for row in open_rows[-_MAX_DEPTH:]
                if row[1] >= start and row[1] + _ROUNDING_NS >= end
            )
        )
    return stacks
