"""The table of inputs names tests that exist, and every package that reads files is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_row_is_held_by_a_test_that_exists(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 5
    assert all(cells)
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", cells[-1])
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


def test_the_policy_points_to_the_table() -> None:
    assert "(docs/security.md)" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
