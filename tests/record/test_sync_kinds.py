"""One vocabulary of syncs: values that reports hold, names that tables and advice share."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harness.findings.finding_catalogue import KINDS, RULES, with_findings
from harness.record.audit_report import AuditReport, Site, from_json, to_json
from harness.record.sync_kinds import SyncKind, kinds_of
from harness.tables.audit_text import report_text

ROOT = Path(__file__).parents[2]
STORED = (
    "argument_validation", "blocking_copy", "blocking_pinned_h2d", "bool_branch", "bool_mask_index",
    "d2h_copy", "dynamic_output_size", "empty_cache", "error_check_read", "event_synchronize",
    "expert_poll", "explicit_synchronize", "found_inf_read", "implicit_scalar_arg",
    "optimizer_step_counter", "pageable_h2d", "pageable_non_blocking", "per_layer_rebuild",
    "per_param_scalar_read", "pinned_h2d", "print_tensor", "scalar_read", "scalar_tensor_index",
    "slice_bound_read",
)  # fmt: skip
"""Values that reports hold; one that is missing makes them unreadable."""
OTHERS_NAMES = {"empty_cache": ("gpu_answers.py", "allocator.py")}
"""Value -> files that write it as the name of a function of torch."""


def report_of(*sites: Site) -> AuditReport:
    return AuditReport(
        source="emulated",
        target="t",
        device="emulated H100",
        steps=1,
        syncs_per_step=1,
        sites=sites,
    )


def site_of(kind: SyncKind, op: str = "aten::x") -> Site:
    return Site(op=op, kind=kind, phase="forward", count_per_step=1, syncs_per_call=1)


@pytest.mark.parametrize("value", STORED)
def test_each_stored_value_is_read_as_its_kind_and_written_as_it_was(value: str) -> None:
    text = to_json(report_of(site_of(SyncKind.SCALAR_READ))).replace("scalar_read", value)
    (site,) = from_json(text).sites
    assert site.kind is SyncKind(value)
    assert f'"kind": "{value}"' in to_json(from_json(text))


def test_the_values_are_those_that_reports_hold() -> None:
    assert sorted(SyncKind) == sorted(STORED)


@pytest.mark.parametrize("kind", SyncKind)
def test_each_kind_has_a_sentence_a_remedy_and_a_finding_that_speaks_about_it(
    kind: SyncKind,
) -> None:
    assert kind.sentence[0].isupper()
    assert kind.sentence.endswith(".")
    assert kind.remedy.endswith(".")
    assert kind.finding in KINDS
    found = with_findings(report_of(site_of(kind)))
    assert [finding.kind for finding in found.findings] == [kind.finding]
    assert found.sites[0].finding == kind.finding


def test_rules_without_a_claim_of_their_own_take_the_kinds_that_name_them() -> None:
    for rule in RULES:
        if rule.claims is None:
            assert rule.sites is None
            assert kinds_of(rule.kind)


def test_a_finding_that_no_kind_names_is_an_error() -> None:
    with pytest.raises(ValueError, match="scalar-reed"):
        kinds_of("scalar-reed")


@pytest.mark.parametrize("width", [60, 120])
def test_table_and_advice_call_one_place_by_one_name(width: int) -> None:
    site = site_of(SyncKind.BOOL_BRANCH)
    text = report_text(with_findings(report_of(site)), width=width)
    assert text.count("scalar-read") == 2
    assert "bool_branch" not in text
    without = report_text(report_of(site), width=width)
    assert without.count("scalar-read") == 2
    assert SyncKind.BOOL_BRANCH.sentence in " ".join(without.split())


def test_a_special_finding_names_the_site_it_takes() -> None:
    (site,) = with_findings(report_of(site_of(SyncKind.D2H_COPY))).sites
    assert site.name == "serialized-copy"
    unread = Site(
        op="aten::_to_copy",
        kind=SyncKind.D2H_COPY,
        phase="forward",
        count_per_step=1,
        syncs_per_call=1,
        unread_per_step=1,
    )
    (site,) = with_findings(report_of(unread)).sites
    assert site.name == "unneeded-copy"


def test_no_code_spells_a_kind_out() -> None:
    """A kind that is written as a string is checked by nobody."""
    values = set(SyncKind)
    bare = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.value}"
        for package in ("gapless", "harness", "optimizations", "scenarios", "dashboard")
        for file in (ROOT / package).rglob("*.py")
        if file.name != "sync_kinds.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in values
        and file.name not in OTHERS_NAMES.get(node.value, ())
    ]
    assert not bare
