"""The report, and that every way of showing a figure shows the same digits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.markdown_report import MARKER, MAX_LINES, csv_report, json_report, markdown_report
from gapless.cli.main import main
from harness.origin import HOME
from harness.tables.grid import plain_markdown
from harness.tables.run_tables import run_tables
from tests.dashboard import synthetic
from tests.dashboard.exporting import data_of, exported
from tests.dashboard.payloads import PAYLOADS, poisoned
from tests.dashboard.stores import fill_modelled, fill_one

if TYPE_CHECKING:
    from harness.record.store import Store

APP = Path(HOME) / "dashboard" / "app.py"


def test_the_verdict_comes_first_and_the_report_is_short(store: Store) -> None:
    fill_one(store)
    fill_modelled(store)
    records = list(store.listing().records)
    lines = markdown_report(records).splitlines()
    assert lines[0] == MARKER
    assert lines[2].startswith(
        "**6 published claims, measured: 1 faster, 3 not measured, 2 without"
    )
    for fix in synthetic.FIXES:
        assert sum(line.startswith(f"| {fix},") for line in lines) == 2, fix
    count, shown = map(
        int, re.findall(r"(\d+) figures of arms .* (\d+) of them", "\n".join(lines))[0]
    )
    assert count == 60
    assert sum(line.count("measured") for line in lines if " · " in line) == shown
    assert len(lines) <= MAX_LINES
    assert any("all with `gapless report --all`" in line for line in lines)
    everything = markdown_report(records, everything=True)
    assert len(everything.splitlines()) > MAX_LINES
    assert "report --all" not in everything


def test_failed_parity_is_in_the_first_sentence() -> None:
    made = synthetic.record(1)
    failed = msgspec.structs.replace(made.parity[0], passed=False)
    text = markdown_report([msgspec.structs.replace(made, parity=(failed, *made.parity[1:]))])
    assert "1 parity check fails" in text.splitlines()[2]


def test_an_empty_store_says_so() -> None:
    assert "No comparison" in markdown_report([])
    assert json.loads(json_report([]))["comparisons"] == []
    assert csv_report([]).count("\n") == 1


def test_one_record_reads_the_same_everywhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_one(store)
    record = store.listing().records[0]
    shown = run_tables(record)[0]
    figures = {(r[0], r[1]): r[4] for r in shown.rows if "noise floor" not in r[0]}
    assert len(figures) == 12

    document = json.loads(json_report([record]))
    rows = [row for row in document["comparisons"] if not row["is_noise"]]
    assert {(row["arm"], row["phase"]): row["text"] for row in rows} == figures

    markdown = markdown_report([record], everything=True)
    for text in figures.values():
        assert plain_markdown(text) in markdown

    blocks = data_of(exported(store, tmp_path / "out.html"))["blocks"]
    table = next(b for b in blocks if b["type"] == "table" and b["name"] == "ab")
    arm, phase, speedup = (table["columns"].index(n) for n in ("Arm", "Phase", "Speedup"))
    cells = {(row[arm], row[phase]): row[speedup] for row in table["rows"]}
    assert figures.items() <= cells.items()

    monkeypatch.setenv("GAPLESS_STORE", store.root)
    page = (
        AppTest.from_file(str(APP), default_timeout=60).run().switch_page("views/ab_view.py").run()
    )
    frame = page.dataframe[-1].value
    on_page = {(r["Arm"], r["Phase"]): r["Speedup"] for _, r in frame.iterrows()}
    assert on_page == figures


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_is_text_in_markdown(payload: str) -> None:
    text = markdown_report([poisoned(synthetic.record(1), payload)], everything=True)
    body = text.replace(MARKER, "", 1)
    assert "<" not in body
    assert "](" not in body.replace("\\]\\(", "").replace("\\](", "")
    assert "://" not in body
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7, 8}


def test_the_verb_prints_and_appends_to_the_job_summary(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_one(store)
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["report", "--store", store.root]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(MARKER)
    assert summary.read_text() == f"before\n{printed}\n"
    assert main(["report", "--store", store.root, "--format", "json", "--gpu", "CPU"]) == 0
    assert json.loads(capsys.readouterr().out)["comparisons"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "xml"], "choose md, csv or json"),
        (["--since", "soon"], "write it as 2026-01-31"),
        (["--source", "guessed"], "choose measured or modelled"),
        (["--gpu", "none"], "No run has the gpu 'none'; choose B200, H100, cpu."),
        (["--model", "x", "--gpu", "cpu"], "No run has the model 'x'; choose Synthetic"),
        (["--until", "2020-01-01"], "The filter until 2020-01-01 keeps none of the "),
        (["--gpu", "b200", "--source", "measured"], "The filter source measured keeps none of"),
        (["--format", "csv", "--all"], "--all is for Markdown"),
        (["--store", "nowhere"], "There is no store nowhere; give the folder of some runs."),
    ],
)
def test_filters_that_keep_nothing_say_which_one(
    words: list[str], says: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_one(store)
    fill_modelled(store)
    named = [] if "--store" in words else ["--store", store.root]
    assert main(["report", *named, *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert len(captured.err.splitlines()) == 1
