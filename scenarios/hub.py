"""Distinguishes hub ids from folders."""

from __future__ import annotations

import re
from pathlib import Path

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_id(source: str) -> bool:
    """Whether `source` reads as `owner/name` and no such path exists here."""
    return _HUB_ID.fullmatch(source) is not None and not Path(source).exists()
