"""What was decided about one optimization of a model, and why."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """What was decided about one optimization."""

    optimization: str
    variant: str | None
    """`None` where it stays off."""
    reason: str

    def __str__(self) -> str:
        return f"{self.optimization}: {self.variant or 'off'}, {self.reason}"
