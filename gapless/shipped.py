"""The records that come with gapless: modelled runs of the published rows, and measured ones."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped_results() -> Path:
    """Where they lie: inside the installed package, or `results` of a clone."""
    inside = _PACKAGE / "results"
    return inside if inside.is_dir() else _PACKAGE.parent / "results"
