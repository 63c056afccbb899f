"""Text of others is shown, never obeyed: by the terminal, Markdown, CSV, HTML and JSON alike."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.markdown_report import csv_report, json_report, markdown_report
from dashboard.plain import chart_text, markdown_text
from gapless.saying import say, say_aside
from gapless.terminal_tables import print_table
from harness.audit.trace import audit_trace
from harness.boundary.foreign_text import json_text, one_line, visible, visible_values
from harness.record.audit_report import to_json
from harness.record.store import Store
from harness.tables.audit_text import report_html, report_text
from harness.tables.grid import Table, to_csv, to_markdown
from tests.record.stored_runs import record

ROOT = Path(__file__).resolve().parents[2]
ANSI = ROOT.parent / "shared" / "faults" / "traces" / "ansi.json"
STEERING = "\x1b[31mred\x1b]0;title\x07\x9b2J\x08\r\u202egnp\u2066\u200b\ufeff\u2028\x85\x7f"
PRINTS = {
    "gapless/saying.py": "the one place that prints a line",
    "gapless/terminal_tables.py": "tables, whose cells are made visible first",
    "harness/tables/audit_text.py": "reports, which are made visible first",
    "gapless/auditing.py": "a report that audit_text made",
    "gapless/stops.py": "a fixed sentence, before anything else is imported",
    "harness/plugins.py": "a sentence whose foreign words are made visible",
    "harness/emulator/cuda/nvidia_smi_program.py": "what audited code reads as nvidia-smi's answer",
    "dashboard/trace_worker.py": "into the pipe of its parent",
}
"""Files that write to a stream, and why what they write is harmless."""


def harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t\xa0" for char in text)


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Co"])))
def test_visible_text_has_no_character_that_does_something(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert {unicodedata.category(char) for char in shown if char not in "\n\t"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}
    )
    assert "\n" not in one_line(text)
    shown.encode()


def test_plain_text_stays_and_a_steering_one_can_be_read() -> None:
    for text in ("", "plain", "zwei Zeilen\n\tund ein Tab", "\u4f60\u597d \U0001f600", "a\xa0b"):
        assert visible(text) == text
    assert visible("\x1b[2J\x9b\u202e") == "\\x1b[2J\\x9b\\u202e"
    assert visible_values({"\x1b": ["\x07", 1, None]}) == {"\\x1b": ["\\x07", 1, None]}


@given(st.recursive(st.text() | st.integers(-5, 5), lambda inner: st.lists(inner, max_size=3)))
def test_json_is_harmless_and_says_the_same(document: object) -> None:
    text = json_text(document)
    assert harmless(text.replace("\u3000", ""))
    assert json.loads(text) == document


def test_every_way_out_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table((STEERING,), ((STEERING,),), title=STEERING, notes=(STEERING,))
    print_table(table)
    say(STEERING)
    say_aside(STEERING)
    shown = capsys.readouterr()
    for text in (
        shown.out,
        shown.err,
        to_markdown(table),
        to_csv(("a",), ((STEERING,),)),
        chart_text(STEERING),
        markdown_text(STEERING),
    ):
        assert harmless(text)
        assert "gnp" in text


def test_a_stored_record_comes_back_visible(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    odd = msgspec.structs.replace(record("r1"), command=STEERING, notes=(STEERING,))
    store.write(odd, [])
    (found,) = store.listing().records
    assert store.read("r1").notes == found.notes
    assert found.command == visible(STEERING)
    for text in (markdown_report([found]), csv_report([found]), json_report([found])):
        assert harmless(text)


def trace_file(folder: Path) -> Path:
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 50, "args": args}
        for cat, name, ts, args in (
            ("python_function", f"{STEERING}.py(3): {STEERING}", 0, {}),
            ("cpu_op", f"aten::{STEERING}", 5, {"External id": 1}),
            ("cuda_runtime", "cudaStreamSynchronize", 10, {"correlation": 1}),
            ("kernel", STEERING, 12, {"device": 0, "stream": STEERING, "correlation": 2}),
        )
    ]
    properties = [{"id": 0, "name": STEERING}]
    path = folder / f"a{STEERING.replace('/', '')}.json"
    path.write_text(json.dumps({"deviceProperties": properties, "traceEvents": events}))
    return path


def test_a_trace_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    report = audit_trace(trace_file(tmp_path))
    assert report.sites
    for text in (report_text(report), to_json(report), report_html(report)):
        assert harmless(text)
    assert harmless(" ".join(site.op for site in report.sites))


@pytest.mark.skipif(not ANSI.is_file(), reason="needs ../shared/faults beside the checkout")
def test_the_reported_trace_is_harmless_on_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gapless", "audit", str(ANSI), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert harmless(done.stdout)
    assert harmless(done.stderr)
    assert "\\x1b[31mRED" in done.stdout


def test_an_error_shows_what_it_names(capfd: pytest.CaptureFixture[str]) -> None:
    from gapless.cli.main import main

    assert main(["audit", f"/absent/{STEERING}.json"]) == 2
    assert harmless(capfd.readouterr().err)


def test_nothing_prints_past_the_one_place() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("gapless", "harness", "dashboard", "scenarios", "optimizations")
        for path in (ROOT / package).rglob("*.py")
        if any(map(_prints, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == set(PRINTS)


def _prints(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in ("print", "typer.echo", "typer.secho", "console.print", "rich.print") or (
        called.endswith((".stdout.write", ".stderr.write"))
    )
