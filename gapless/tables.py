"""Prints a table in a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.tables import Table

MIN_WIDTH = 60
PIPE_WIDTH = 170
"""Width where the output is no terminal, so that a log or a pipe keeps one row on one line."""
MAX_UNBROKEN = 20
"""Words up to this long stay whole in a narrow terminal; other columns give way."""


def print_table(table: Table) -> None:
    """Print to stdout as text, as wide as the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    console = Console(file=sys.stdout, width=max(width, MIN_WIDTH), highlight=False)
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    if table.title:
        console.print(Text(table.title, style="bold"))
    for position, column in enumerate(table.columns):
        cells = [row[position] for row in table.rows]
        short = all(" " not in cell and len(cell) <= MAX_UNBROKEN for cell in cells)
        grid.add_column(Text(column), overflow="fold", no_wrap=short)
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)
    for number, note in enumerate(table.notes, start=1):
        console.print(Text(f"{number}. {note}"))
