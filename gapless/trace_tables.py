"""Comparisons of two audits, and another tool's numbers, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.tables.grid import Table

if TYPE_CHECKING:
    from harness.audit.trace import AuditComparison, HtaNumbers


def comparison_table(comparison: AuditComparison) -> Table:
    """A, B and the difference of each figure."""
    rows = tuple(
        (row.group, row.name, _figure(row.a), _figure(row.b), _signed(row.difference), row.unit)
        for row in comparison.rows
    )
    same = comparison.num_compared - len(rows)
    notes = comparison.notes
    if same:
        notes = (*notes, f"{same} of {comparison.num_compared} figures did not move (--all).")
    return Table(
        columns=("Group", "Figure", "A", "B", "B - A", "Unit"),
        rows=rows,
        title=f"A = {comparison.target_a}, B = {comparison.target_b}",
        notes=notes,
    )


def compat_table(numbers: HtaNumbers) -> Table:
    """Every number that HolisticTraceAnalysis prints, under its own names."""
    values = msgspec.structs.asdict(numbers)
    streams, times = values.pop("idle_breakdown"), values.pop("times")
    rows = [(name, _figure(value)) for name, value in values.items()]
    for stream in streams:
        for name in ("host_wait_us", "kernel_wait_us", "other_us"):
            rows.append((f"stream {stream.stream} {name}", _figure(getattr(stream, name))))
    return Table(
        columns=("HTA's name", "Value"), rows=tuple(rows), title=f"By HTA's own rules, {times}"
    )


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.6g}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+,.6g}"
