"""Best-fit-decreasing packing of documents into rows of a token budget.

Knows lengths only. A document longer than the budget is split: each piece is then a document of
its own, so no token is lost. The result depends on the lengths and the budget alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Piece:
    """A run of tokens of one document; a whole document unless it was split."""

    document: int
    start: int
    length: int


@dataclass(frozen=True)
class Row:
    """Pieces that share one row of the token budget."""

    pieces: tuple[Piece, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens in the row, padding not counted."""
        return sum(piece.length for piece in self.pieces)


def pack(lengths: Sequence[int], budget_tokens: int) -> tuple[Row, ...]:
    """Rows of at most `budget_tokens` that hold every token of every document once.

    Pieces are placed longest first, each into the row it fills best, so any two rows together
    hold more than the budget. Empty documents are left out. O(n log n) for n pieces, but for the
    list insertion. Raises `ValueError` for a budget below 1 or a negative length.
    """
    if budget_tokens < 1:
        raise ValueError(f"budget_tokens must be at least 1, not {budget_tokens}")
    rows: list[list[Piece]] = []
    free: list[tuple[int, int]] = []  # (free tokens, row), ascending: best fit by bisection
    for piece in sorted(_pieces(lengths, budget_tokens), key=_longest_first):
        position = bisect_left(free, (piece.length, -1))
        if position < len(free):
            free_tokens, row = free.pop(position)
        else:
            free_tokens, row = budget_tokens, len(rows)
            rows.append([])
        rows[row].append(piece)
        if free_tokens > piece.length:
            insort(free, (free_tokens - piece.length, row))
    return tuple(Row(tuple(pieces)) for pieces in rows)


def position_ids(lengths: Sequence[int]) -> list[int]:
    """Positions in a row of documents of these lengths: they restart at each document."""
    return [position for length in lengths for position in range(length)]


def _longest_first(piece: Piece) -> tuple[int, int, int]:
    return (-piece.length, piece.document, piece.start)


def _pieces(lengths: Sequence[int], budget_tokens: int) -> list[Piece]:
    pieces = []
    for document, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"document {document} has a negative length: {length}")
        for start in range(0, length, budget_tokens):
            pieces.append(Piece(document, start, min(budget_tokens, length - start)))
    return pieces
