"""Tables as data, and how they are written into documents: Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.boundary.foreign_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        """Numbers of these sentences, `1 4`."""
        return " ".join(str(number) for number in sorted({self.number(s) for s in sentences}))


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown, notes as a numbered list; every cell stays plain text."""
    columns = tuple(map(one_line, table.columns))
    lines = [_markdown_row(columns), _markdown_row(("---",) * len(columns))]
    lines += [_markdown_row(tuple(plain_markdown(cell) for cell in row)) for row in table.rows]
    if table.notes:
        lines += [""]
        lines += [f"{n}. {plain_markdown(note)}" for n, note in enumerate(table.notes, start=1)]
    return "\n".join(lines)


def plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no HTML, link, image, emphasis, mention or line break."""
    text = one_line(text)
    text = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([`*_\[\]|~$!#])", r"\\\1", text)
    # A mention notifies people, and a bare address becomes a link.
    return text.replace("@", "&#64;").replace("://", "&#58;//")


def to_csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Raw values as CSV, one line a row; unknown is empty. Text that a spreadsheet would run as a
    formula stays text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        line = one_line(value)
        return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line
    return value


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
