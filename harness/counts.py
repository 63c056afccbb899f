"""Counts in text: the number and its noun, singular or plural."""

from __future__ import annotations


def number(value: float) -> str:
    """A count, whole where it is whole: `1,536`, `0.50`."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def counted(value: float, noun: str, plural: str | None = None) -> str:
    """A count with its noun: `1 sync`, `2 syncs`, `0.50 syncs`, `1,536 syncs`.

    `plural` is for nouns that take more than an `s`: `counted(2, "copy", "copies")`.
    """
    return f"{number(value)} {noun if value == 1 else plural or f'{noun}s'}"
