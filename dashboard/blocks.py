"""What a page of the export is made of: words, charts and tables, as plain data.

Pages are built once here and drawn by `assets/export.js`, which knows these blocks and nothing of
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from dashboard.charts.style import Figure
    from harness.tables.grid import Table


class Text(msgspec.Struct, tag="text", frozen=True):
    """A paragraph."""

    text: str
    tone: Literal["plain", "quiet", "warning"] = "plain"


class Heading(msgspec.Struct, tag="heading", frozen=True):
    """A heading inside a page."""

    text: str


class Chart(msgspec.Struct, tag="chart", frozen=True):
    """A Plotly figure and what it says in words."""

    alt: str
    figure: dict[str, Any]


class Grid(msgspec.Struct, tag="table", frozen=True):
    """A table; `csv` has the same rows with every field unrounded."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    name: str = ""
    """File name of the CSV, without its ending."""
    csv: str = ""
    csv_run: str = ""
    """Instead of a CSV of its own: the lines of this run in the CSV of the table `ab`."""
    moved: tuple[bool, ...] = ()
    """For each row whether it changed; empty where that is no question."""


class Code(msgspec.Struct, tag="code", frozen=True):
    """Something to copy."""

    text: str
    label: str


Block = Text | Heading | Chart | Grid | Code


class Page(msgspec.Struct, frozen=True):
    """One page: the question it answers, then its blocks."""

    id: str
    title: str
    question: str
    blocks: tuple[Block, ...]


def chart(figure: Figure, alt: str) -> Chart:
    """A figure as a block."""
    return Chart(alt=alt, figure=_short(figure))


def grid(
    table: Table,
    *,
    name: str = "",
    csv: str = "",
    csv_run: str = "",
    moved: tuple[bool, ...] = (),
) -> Grid:
    """A table as a block."""
    return Grid(
        columns=table.columns, rows=table.rows, name=name, csv=csv, csv_run=csv_run, moved=moved
    )


def _short(value: Any) -> Any:
    """Numbers of a drawing to four digits: finer than any screen, a quarter of the bytes."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    return value
