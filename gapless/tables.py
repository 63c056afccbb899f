"""Tables as data, and the two ways they are printed: text in a terminal, Markdown in a document."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field

MIN_WIDTH = 60
PIPE_WIDTH = 150
"""Width where the output is no terminal, so that a log or a pipe keeps one row on one line."""


@dataclass(frozen=True)
class Table:
    """Cells as text, and numbered notes below."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Notes:
    """Collects sentences for below a table; the same sentence gets the same number."""

    sentences: list[str] = field(default_factory=list)

    def number(self, sentence: str) -> int:
        """The number under which this sentence stands, from 1."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)
        return self.sentences.index(sentence) + 1

    def refer(self, sentences: tuple[str, ...]) -> str:
        """Numbers of these sentences, `1, 4`."""
        return ", ".join(str(number) for number in sorted({self.number(s) for s in sentences}))


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
    for column in table.columns:
        grid.add_column(Text(column), overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)
    for number, note in enumerate(table.notes, start=1):
        console.print(Text(f"{number}. {note}"))


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown, notes as a numbered list."""
    lines = [_markdown_row(table.columns), _markdown_row(tuple("---" for _ in table.columns))]
    lines += [_markdown_row(row) for row in table.rows]
    if table.notes:
        lines += ["", *(f"{n}. {note}" for n, note in enumerate(table.notes, start=1))]
    return "\n".join(lines)


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
