"""Rows of any view as a table for people and as raw values for CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from harness.record.records import Record
from harness.tables.grid import Table, to_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = TypeVar("Row", bound=Record)


class Columns(Generic[Row]):
    """How rows of one type are written: heading -> text of a row."""

    def __init__(self, texts: dict[str, Callable[[Row], str]]) -> None:
        self._texts = texts

    def table(self, rows: Sequence[Row]) -> Table:
        """The rows as text cells."""
        return Table(
            columns=tuple(self._texts),
            rows=tuple(tuple(text(row) for text in self._texts.values()) for row in rows),
        )


def rows_csv(row_type: type[Record], rows: Sequence[Record]) -> str:
    """Every field of every row, figures unrounded."""
    names = row_type.__struct_fields__
    return to_csv(names, [[_plain(getattr(row, name)) for name in names] for row in rows])


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, int, float)):
        return value
    return msgspec.json.encode(value).decode()
