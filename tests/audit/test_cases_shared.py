"""The known-answer cases beside the checkout: every total exact, every site found, no other."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.audit.emulated.emulated_audit import audit_target

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport, Site

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
CASES = sorted(FOLDER.glob("*.py"))


def header(case: Path) -> dict[str, Any]:
    docstring = ast.get_docstring(ast.parse(case.read_text(encoding="utf-8")), clean=False)
    assert docstring is not None
    found: dict[str, Any] = json.loads(docstring)
    return found


def matching(report: AuditReport, entry: dict[str, Any]) -> list[Site]:
    return [
        site
        for site in report.sites
        if site.op == entry["op"]
        and site.kind == entry["kind"]
        and site.phase == entry.get("phase", "forward")
        and entry["line_contains"] in (site.code or "")
    ]


@pytest.mark.skipif(not CASES, reason="the folder with the shared cases is not beside the checkout")
@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_every_expected_site_is_found_and_no_other(case: Path, mode: Any) -> None:
    expected = header(case)
    report = audit_target(f"{case}:build", mode=mode)

    explained: list[Site] = []
    for entry in expected["expected"]:
        sites = matching(report, entry)
        explained += sites
        calls = sum(site.count_per_step for site in sites)
        if entry["count_per_step"] is None:
            assert calls >= entry["min_count"], entry
        else:
            assert calls == entry["count_per_step"], entry
            assert all(s.syncs_per_call == entry.get("syncs_per_call", 1) for s in sites)
    if expected["total_syncs_per_step"] is not None:
        assert report.syncs_per_step == expected["total_syncs_per_step"]
        assert [site for site in report.sites if site not in explained] == []
    for line in expected.get("not_sync", ()):
        assert not [site for site in report.sites if line in (site.code or "")], line
