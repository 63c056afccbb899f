"""What a record may hold: figures that every reader, the index and JSON can carry on, and not more
entries than a view can show."""

from __future__ import annotations

import math

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**64 - 1
LARGEST_FIGURE = 1e100
"""Of a fraction. What is derived from two of them, a square or a ratio, stays finite."""
MOST_ENTRIES = 20_000
"""In one list. A run of 60 arms has 300 comparisons, an audit of a large model 2,000 sites."""


def unsound(value: object, where: str) -> str | None:
    """What is wrong with the first part that no record may hold, with its path, else `None`.

    `value` is made of dicts, sequences and plain values, as `msgspec.to_builtins` gives them; a
    path is such as `record.parity[0].tolerance`.
    """
    if isinstance(value, bool | str) or value is None:
        return None
    if isinstance(value, int):
        if SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            return None
        return f"{where} is not an integer of 64 bits"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"{where} is not a finite number"
        return None if abs(value) <= LARGEST_FIGURE else f"{where} is larger than {LARGEST_FIGURE}"
    if isinstance(value, dict):
        children = ((item, f"{where}.{key}") for key, item in value.items())
    elif isinstance(value, list | tuple):
        children = ((item, f"{where}[{i}]") for i, item in enumerate(value))
    else:
        return None
    if len(value) > MOST_ENTRIES:
        return f"{where} has {len(value)} entries and may have {MOST_ENTRIES}"
    return next((found for item, path in children if (found := unsound(item, path))), None)
