"""What a page is made of: words, charts, tables and links, as plain data.

Pages are built once, in this room. `dashboard/views/block_renderer.py` draws blocks with Streamlit,
`dashboard/html_export.py` with `assets/export.js`; neither knows anything of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from dashboard.charts.style import Figure
    from harness.tables.grid import Table

Tone = Literal["plain", "quiet", "info", "warning", "error", "good"]


class Text(msgspec.Struct, tag="text", frozen=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Heading(msgspec.Struct, tag="heading", frozen=True):
    """A heading inside a page."""

    text: str


class Badges(msgspec.Struct, tag="badges", frozen=True):
    """Short words side by side, each with a tone that the words say as well."""

    items: tuple[tuple[str, Tone], ...]


class Metrics(msgspec.Struct, tag="metrics", frozen=True):
    """A few figures with their names, written large."""

    items: tuple[tuple[str, str], ...]


class Chart(msgspec.Struct, tag="chart", frozen=True):
    """A Plotly figure and what it says in words; the name is its own on the page."""

    name: str
    alt: str
    figure: dict[str, Any]


class Grid(msgspec.Struct, tag="table", frozen=True):
    """A table; `csv` has the same rows with every field unrounded.

    A column `Run` holds ids of runs, each of which links to its page.
    """

    name: str
    """File name of the CSV, without its ending; its own on the page."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    csv: str = ""
    csv_run: str = ""
    """Instead of a CSV of its own: the lines of this run in the CSV of the table `ab`."""
    moved: tuple[bool, ...] = ()
    """For each row whether it changed; empty where that is no question."""


class Code(msgspec.Struct, tag="code", frozen=True):
    """Something to copy, under a label."""

    text: str
    label: str = ""
    is_folded: bool = False


class Links(msgspec.Struct, tag="links", frozen=True):
    """Runs by name and id; each links to its page."""

    runs: tuple[tuple[str, str], ...]


class Download(msgspec.Struct, tag="download", frozen=True):
    """A file to keep."""

    label: str
    file_name: str
    content: str
    media_type: str = "text/csv"


class Details(msgspec.Struct, tag="details", frozen=True):
    """Blocks that are folded away until somebody asks."""

    label: str
    blocks: tuple[Block, ...]


class Columns(msgspec.Struct, tag="columns", frozen=True):
    """Groups of blocks side by side where there is room."""

    groups: tuple[tuple[Block, ...], ...]


Block = (
    Text | Heading | Badges | Metrics | Chart | Grid | Code | Links | Download | Details | Columns
)


class Head(msgspec.Struct, frozen=True):
    """What stands above a page."""

    id: str
    name: str
    """In a list of pages."""
    title: str
    question: str


class Page(msgspec.Struct, frozen=True):
    """One page whole, as the export shows it."""

    head: Head
    blocks: tuple[Block, ...]


def grid(
    name: str,
    table: Table,
    *,
    csv: str = "",
    moved: tuple[bool, ...] = (),
) -> Grid:
    """A table as a block."""
    return Grid(name=name, columns=table.columns, rows=table.rows, csv=csv, moved=moved)


def chart(name: str, figure: Figure, alt: str) -> Chart:
    """A figure as a block."""
    return Chart(name=name, alt=alt, figure=figure)


def nothing(sentence: str, command: str) -> tuple[Block, ...]:
    """Nothing to show, and what to type to have something."""
    return Text(sentence, "info"), Code(command)
