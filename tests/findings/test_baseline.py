"""The gate lists what is new, and only that, wherever the lines have moved to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.audit.emulated.emulated_audit import audit_target
from harness.audit.known_sites import new_sites, read_baseline
from harness.errors import UsageError
from harness.record.audit_report import to_json

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.audit_report import AuditReport

STEP = """import torch

def build():
    x = torch.ones(3, device="cuda")

    def step():
        total = x.sum().item()
{extra}        return total

    return step
"""
SECOND = "        kept = x[x > 0]\n"


def audit(folder: Path, name: str, text: str) -> AuditReport:
    folder = folder / name
    folder.mkdir()
    file = folder / "step.py"
    file.write_text(text)
    return audit_target(f"{file}:build")


def test_a_moved_line_is_known_and_another_line_is_new(tmp_path: Path) -> None:
    before = audit(tmp_path, "before", STEP.format(extra=""))
    moved = audit(tmp_path, "moved", "# a comment\n\n" + STEP.format(extra="        # more\n"))
    worse = audit(tmp_path, "worse", "\n" + STEP.format(extra=SECOND))

    assert before.sites[0].line != moved.sites[0].line
    assert new_sites(moved, before) == ()
    assert [site.code for site in new_sites(worse, before)] == ["kept = x[x > 0]"]


def test_the_same_line_once_more_is_new(tmp_path: Path) -> None:
    before = audit(tmp_path, "before", STEP.format(extra=""))
    twice = audit(tmp_path, "twice", STEP.format(extra="        total = x.sum().item()\n"))

    assert len(new_sites(twice, before)) == 1


def test_a_changed_line_or_function_is_new(tmp_path: Path) -> None:
    before = audit(tmp_path, "before", STEP.format(extra=""))
    changed = audit(tmp_path, "changed", STEP.format(extra="").replace("x.sum()", "x.max()"))
    renamed = audit(tmp_path, "renamed", STEP.format(extra="").replace("step", "other"))

    assert len(new_sites(changed, before)) == 1
    assert len(new_sites(renamed, before)) == 1


def test_a_site_that_went_away_is_no_news(tmp_path: Path) -> None:
    worse = audit(tmp_path, "worse", STEP.format(extra=SECOND))
    better = audit(tmp_path, "better", STEP.format(extra=""))

    assert new_sites(better, worse) == ()


@pytest.mark.parametrize("before", ["", "a table first\nand more\n"])
def test_a_baseline_is_what_json_printed(tmp_path: Path, before: str) -> None:
    report = audit(tmp_path, "one", STEP.format(extra=""))
    file = tmp_path / "audit.json"
    file.write_text(before + to_json(report) + "\n")

    assert read_baseline(file) == report


def test_errors_name_the_file_and_the_mend(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.json cannot be read.*--json"):
        read_baseline(tmp_path / "missing.json")
    broken = tmp_path / "broken.json"
    for text in ("", "no json", '{"schema": 1}', "[]"):
        broken.write_text(text)
        with pytest.raises(UsageError, match="holds no audit report"):
            read_baseline(broken)
