"""The report for people: dearest first, never a wall, readable at any width."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.audit.growth import Growth, Sizes, fit_growth
from harness.record.audit_report import AuditReport, CopySummary, RedundantGroup, Site
from harness.record.sync_kinds import SyncKind
from harness.tables.audit_text import report_html, report_text, short_path, sorted_sites


def site(number: int, **changes: object) -> Site:
    fields: dict[str, object] = {
        "op": "aten::item", "kind": SyncKind.SCALAR_READ, "phase": "forward",
        "count_per_step": float(number), "syncs_per_call": 1.0, "file": f"/home/train_{number}.py",
        "line": number, "code": f"loss_{number}.item()", "function": "step",
    }  # fmt: skip
    return Site(**{**fields, **changes})  # type: ignore[arg-type]


def report(num_sites: int = 3, **changes: object) -> AuditReport:
    fields: dict[str, object] = {
        "source": "emulated", "target": "train.py:step", "device": "emulated H100 (real values)",
        "steps": 2, "syncs_per_step": 6.0, "sites": tuple(site(i + 1) for i in range(num_sites)),
    }  # fmt: skip
    return AuditReport(**{**fields, **changes})  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(width=st.integers(20, 200), num_sites=st.integers(0, 30), top=st.integers(0, 30))
def test_no_line_is_wider_than_asked_and_no_site_is_shown_beyond_the_top(
    width: int, num_sites: int, top: int
) -> None:
    text = report_text(report(num_sites), width=width, top=top)
    assert all(len(line) <= max(width, 50) for line in text.splitlines())
    shown = sum(f"loss_{i + 1}.item()" in text for i in range(num_sites))
    assert shown == min(top, num_sites)
    assert (f"and {num_sites - shown} more sites" in text) == (shown < num_sites)


def test_the_dearest_come_first_by_exposed_time_where_it_is_known() -> None:
    sites = (site(9), site(2, exposed_ms=0.5), site(1, exposed_ms=3.0))
    assert [s.line for s in sorted_sites(report(sites=sites))] == [1, 2, 9]
    text = report_text(report(sites=sites))
    assert "Exposed ms" in text
    assert "Blocked ms" not in text
    assert "modelled" in text
    assert "measured" not in report_text(report(sites=sites, source="live"))
    assert "Exposed ms" not in report_text(report())


def test_every_part_of_a_report_is_shown_once() -> None:
    full = report(
        intended=(site(1, intended="log every 10 steps"),),
        unjudged=("A sparse op has no rule.",),
        notes=("A stand-in ran.",),
        copies=(
            CopySummary(direction="h2d", memory="pageable", blocking=True, count_per_step=2.0),
        ),
        redundant_groups=tuple(
            RedundantGroup(size=4, first=f"m.py:{i}", repeats=(), ops=("aten::cos",))
            for i in range(9)
        ),
    )
    text = report_text(full, width=160)
    for part in (
        "2 steps, 6 syncs per step", "Per phase: forward 6", "2 h2d pageable blocking",
        "1 x scalar-read at ", "log every 10 steps", "A sparse op has no rule.", "A stand-in ran.",
        "first at m.py:0", "and 4 more groups",
    ):  # fmt: skip
        assert text.count(part) == 1, part
    assert text.count("Keep the value on the device") == 1


def test_a_source_line_is_shown_as_it_is() -> None:
    strange = report(sites=(site(1, code="x[bold] = y  # [/red] <b>"),))
    assert "x[bold] = y  # [/red] <b>" in report_text(strange)
    assert "&lt;b&gt;" in report_html(strange)


def test_files_are_named_as_their_reader_knows_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert short_path("/x/lib/python3.11/site-packages/torch/nn/a.py") == "torch/nn/a.py"
    assert short_path(f"{tmp_path}/src/train.py") == "src/train.py"
    assert short_path("relative.py") == "relative.py"


@given(
    constant=st.integers(0, 9), per_layer=st.integers(0, 9), per_expert=st.integers(0, 9),
    layers=st.tuples(st.integers(1, 6), st.integers(7, 12)),
    experts=st.tuples(st.integers(1, 8), st.integers(9, 16)),
)  # fmt: skip
def test_growth_is_found_from_three_sizes(
    constant: int,
    per_layer: int,
    per_expert: int,
    layers: tuple[int, int],
    experts: tuple[int, int],
) -> None:
    def count(sizes: Sizes) -> float:
        return constant + sizes.layers * (per_layer + per_expert * (sizes.experts or 0))

    base = Sizes(layers[0], experts[0])
    sizes = (base, Sizes(layers[1], experts[0]), Sizes(layers[0], experts[1]))
    growth = fit_growth({one: count(one) for one in sizes})
    assert (growth.constant, growth.per_layer, growth.per_expert) == (
        constant, per_layer, per_expert
    )  # fmt: skip


@pytest.mark.parametrize(
    ("growth", "text"),
    [
        (Growth(0, 1, 7), "L*(1 + 7*E_hit)"),  # type: ignore[arg-type]
        (Growth(0, 0, 1), "L*E_hit"),  # type: ignore[arg-type]
        (Growth(2, 0, 3), "2 + 3*L*E_hit"),  # type: ignore[arg-type]
        (Growth(1, 2), "1 + 2*L"),  # type: ignore[arg-type]
        (Growth(0, 1), "L"),  # type: ignore[arg-type]
        (Growth(4, 0), "4"),  # type: ignore[arg-type]
    ],
)
def test_growth_reads_as_people_write_it(growth: Growth, text: str) -> None:
    assert str(growth) == text
