"""Prints a table in a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from harness.boundary.foreign_text import visible
from harness.tables.grid import Table

if TYPE_CHECKING:
    from rich.console import Console

MIN_WIDTH = 60
PIPE_WIDTH = 170
"""Least width where the output is no terminal: a log or a pipe keeps one row on one line."""
MAX_WHOLE = 40
"""A column whose cells are no longer is never broken; longer ones are prose, which wraps."""
MIN_PROSE = 24
"""Narrowest that prose is readable."""
BETWEEN = 3
"""Blank cells between two columns."""


def print_table(table: Table) -> None:
    """Print to stdout as text, as wide as the terminal; row by row where no table fits in it."""
    from rich.console import Console
    from rich.text import Text

    table = Table(
        columns=tuple(map(visible, table.columns)),
        rows=tuple(tuple(map(visible, row)) for row in table.rows),
        title=visible(table.title),
        notes=tuple(map(visible, table.notes)),
    )
    narrowest = _narrowest(table)
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, MIN_WIDTH)
    else:
        width = max(PIPE_WIDTH, narrowest)
    console = Console(file=sys.stdout, width=width, highlight=False)
    if table.title:
        console.print(Text(table.title, style="bold"))
    if narrowest <= width:
        _print_grid(table, console)
    else:
        _print_rows(table, console)
    for number, note in enumerate(table.notes, start=1):
        console.print(Text(f"{number}. {note}"))


def _print_grid(table: Table, console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(table.columns):
        grid.add_column(Text(column), overflow="fold", no_wrap=_is_whole(table, position))
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)


def _print_rows(table: Table, console: Console) -> None:
    """Each row as its first cell, then `Column value` as many to a line as there is room for."""
    from rich.text import Text

    for row in table.rows:
        lines = [row[0]]
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            pair = f"{column} {cell}"
            if cell and len(lines) > 1 and len(lines[-1]) + 2 + len(pair) <= console.width:
                lines[-1] += f", {pair}"
            elif cell:
                lines.append(f"  {pair}")
        console.print(Text("\n".join(lines)))


def _narrowest(table: Table) -> int:
    """Width below which a column would be broken or cut."""
    widths = [
        max(len(cell) for cell in (column, *(row[position] for row in table.rows)))
        if _is_whole(table, position)
        else MIN_PROSE
        for position, column in enumerate(table.columns)
    ]
    return sum(widths) + BETWEEN * (len(widths) + 1)


def _is_whole(table: Table, position: int) -> bool:
    return all(len(row[position]) <= MAX_WHOLE for row in table.rows)
