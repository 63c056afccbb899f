"""One module path for all layers that are repeated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def common_path(paths: Iterable[str]) -> str | None:
    """One path for all: indices that differ become `*`; `None` where the paths differ otherwise."""
    distinct = sorted(set(paths))
    if not distinct:
        return None
    if len(distinct) == 1:
        return distinct[0]
    split = [path.split(".") for path in distinct]
    if len({len(parts) for parts in split}) != 1:
        return None
    joined = []
    for names in zip(*split, strict=True):
        if len(set(names)) == 1:
            joined.append(names[0])
        elif all(re.fullmatch(r"\d+", name) for name in names):
            joined.append("*")
        else:
            return None
    return ".".join(joined)
