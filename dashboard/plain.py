"""Keeps text from records text: names, notes and traces may come from anyone."""

from __future__ import annotations

import re
from pathlib import PurePath

from harness.boundary.foreign_text import one_line

MAX_LABEL = 90


def chart_text(text: str, limit: int = MAX_LABEL) -> str:
    """For a label of a chart, which would otherwise read tags and entities."""
    text = clipped(text, limit)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown_text(text: str) -> str:
    """For a place where Streamlit reads Markdown, icons, colours and formulas."""
    text = one_line(text)
    return re.sub(r"([\\`*_\[\]{}()#+\-.!|~$:<>&])", r"\\\1", text)


def without_folder(error: Exception, root: str) -> str:
    """An error's sentence with the store's name: where its folder lies is nobody's business."""
    return str(error) if "://" in root else str(error).replace(root, PurePath(root).name)


def clipped(text: str, limit: int = MAX_LABEL) -> str:
    """One line, shortened in the middle where it is too long."""
    text = one_line(text)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
