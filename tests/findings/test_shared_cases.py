"""The known-answer cases beside the checkout: groups of redundant work; nothing in clean code."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from harness.audit.emulated.emulated_audit import audit_target

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
CASES = sorted(FOLDER.glob("*.py"))


def groups_in_header(case: Path) -> int | None:
    docstring = ast.get_docstring(ast.parse(case.read_text(encoding="utf-8")), clean=False)
    assert docstring is not None
    number: int | None = json.loads(docstring)["redundant_groups"]
    return number


@pytest.mark.skipif(not CASES, reason="the folder with the shared cases is not beside the checkout")
@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize(
    "case", [c for c in CASES if groups_in_header(c) is not None], ids=lambda case: case.stem
)
def test_redundant_groups_are_as_judged(case: Path, mode: Any) -> None:
    report = audit_target(f"{case}:build", mode=mode)

    assert len(report.redundant_groups) == groups_in_header(case)


@pytest.mark.skipif(not CASES, reason="the folder with the shared cases is not beside the checkout")
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.stem.startswith("n")], ids=lambda case: case.stem
)
def test_clean_code_has_no_finding(case: Path) -> None:
    report = audit_target(f"{case}:build", mode="values")

    assert report.findings == ()
    assert report.redundant_groups == ()
