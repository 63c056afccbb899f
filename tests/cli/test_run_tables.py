"""One run as tables."""

from __future__ import annotations

import json
import re
import sys

import pytest

from gapless.json_documents import indented, reproduce_document, run_document
from gapless.terminal_tables import PIPE_WIDTH, print_table
from harness.record.records import MemoryPeak, SyncCount
from harness.tables.claim_rows import reproduce_table, rows_from_records
from harness.tables.run_tables import parity_text, run_tables, speedup_text
from tests.toys.small_records import claim, comparison, parity, record


def test_comparisons_stand_in_the_order_of_arms_with_the_noise_floor_last() -> None:
    comparisons = run_tables(record())[0]
    assert [row[:2] for row in comparisons.rows] == [
        ("packed-metadata=cached", "forward"),
        ("packed-metadata=cached", "batch"),
        ("packed-metadata=collator", "forward"),
        ("packed-metadata=collator", "batch"),
        ("a/a (noise floor)", "forward"),
        ("a/a (noise floor)", "batch"),
    ]


def test_one_block_has_no_interval() -> None:
    assert speedup_text(comparison("a", num_blocks=1)) == "+20.0% (one block)"
    assert speedup_text(comparison("a", num_blocks=2)) == "+20.0% [+18.0%, +22.0%]"


def test_memory_prefers_the_allocator_and_unknown_is_a_dash() -> None:
    run = record(
        memory=(
            MemoryPeak(
                arm="baseline", phase="forward", kind="rss", peak_bytes=9 << 30, source="measured"
            ),
            MemoryPeak(
                arm="baseline",
                phase="batch",
                kind="tensor-bytes",
                peak_bytes=3 << 20,
                source="measured",
            ),
        ),
        syncs=(
            SyncCount(
                arm="baseline", phase="forward", count=40, source="measured", method="profiler"
            ),
            SyncCount(
                arm="baseline", phase="backward", count=40, source="measured", method="profiler"
            ),
        ),
    )
    baseline, cached, _ = run_tables(run)[1].rows
    assert baseline == ("baseline", "", "1,000", "3 MiB (tensor-bytes)", "80", "-")
    assert cached[3:] == ("-", "-", "-")


@pytest.mark.parametrize(
    ("checks", "text"),
    [
        ((), "-"),
        ((parity("a"),), "bitwise"),
        ((parity("a"), parity("a", bitwise=False, max_rel_difference=1.2e-6)), "within 1.2e-06"),
        ((parity("a"), parity("a", passed=False, quantity="gradients")), "failed (gradients)"),
    ],
)
def test_parity_in_one_word(checks, text: str) -> None:
    assert parity_text(checks) == text


def test_print_keeps_brackets_and_numbers_the_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for table in run_tables(record()):
        print_table(table)
    printed = capsys.readouterr().out
    assert "Speedup [interval]" in printed
    assert "+20.0% [+18.0%, +22.0%]" in printed
    assert all(len(line) <= PIPE_WIDTH for line in printed.splitlines())


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_no_figure_is_lost_in_a_narrow_terminal(capsys, monkeypatch, columns: int) -> None:
    table = reproduce_table(rows_from_records([claim("c1")], [record(claims=(claim("c1"),))]))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(table)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line) <= columns for line in printed.splitlines())
    for cell in table.rows[0]:
        assert cell in printed


def test_run_document_has_the_contract_and_writes_unknown_as_null() -> None:
    document = json.loads(indented(run_document(record())))
    assert {
        "schema",
        "machine",
        "scenario",
        "arms",
        "comparisons",
        "parity",
        "syncs",
        "memory",
    } <= set(document)
    first = document["comparisons"][0]
    assert {"arm", "baseline", "phase", "speedup", "low", "high", "verdict", "source"} <= set(first)
    assert document["machine"]["cuda"] is None
    assert document["samples"] is None


def test_reproduce_document_joins_the_runs_under_the_same_names() -> None:
    runs = [record(id=f"r{number}", claims=(claim(f"c{number}"),)) for number in (1, 2)]
    claims = [claim("c1"), claim("c2"), claim("c3")]
    document = json.loads(indented(reproduce_document(rows_from_records(claims, runs), runs)))
    assert [row["claim"]["id"] for row in document["rows"]] == ["c1", "c2", "c3"]
    assert document["rows"][2]["measured"] is None
    assert document["runs"] == ["r1", "r2"]
    assert [entry["run"] for entry in document["parity"]] == ["r1", "r1", "r2", "r2"]
    assert len(document["comparisons"]) == 2 * len(runs[0].comparisons)
    assert json.loads(indented(reproduce_document((), [])))["machine"] is None


def test_a_comparison_without_its_arm_in_the_record_is_still_shown() -> None:
    run = record(comparisons=(comparison("gone"),))
    assert run_tables(run)[0].rows[0][0] == "gone"
