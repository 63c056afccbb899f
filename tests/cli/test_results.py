"""With `--json` stdout is one document, whoever else writes there; without, text for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gapless.cli.results import results_of
from harness.errors import StoreError
from harness.tables.grid import Table

if TYPE_CHECKING:
    from pathlib import Path

NOISY = """
import os, subprocess, sys, ctypes
from gapless.cli.results import results_of
with results_of(True) as results:
    print("by print")
    os.write(1, b"by the file descriptor\\n")
    ctypes.CDLL(None).puts(b"by C, which keeps it in its buffer")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    results.text("for people")
    results.document({"value": 1})
"""


def test_what_others_write_goes_to_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISY], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(done.stdout) == {"value": 1}
    for words in ("by print", "by the file descriptor", "by C", "by a child"):
        assert words in done.stderr
    assert "for people" not in done.stderr


def test_the_document_is_written_where_the_verb_ends_in_an_error(capsys) -> None:
    def verb() -> None:
        with results_of(True) as results:
            results.document([1])
            raise StoreError("The disk is full.")

    with pytest.raises(StoreError):
        verb()
    assert json.loads(capsys.readouterr().out) == [1]


def test_without_a_document_nothing_is_written(capsys) -> None:
    with pytest.raises(ValueError, match="x"), results_of(True):
        raise ValueError("x")
    assert capsys.readouterr().out == ""


def test_without_json_people_get_text_at_once(capsys) -> None:
    with results_of(False) as results:
        results.table(Table(columns=("Name",), rows=(("one",),)))
        results.document({"value": 1})
        results.text("a line")
        printed = capsys.readouterr().out
    assert "one" in printed
    assert printed.endswith("a line\n")
    assert "value" not in printed


def test_a_script_that_prints_leaves_the_document_alone(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text("import torch\nprint('loss', torch.ones(2, device='cuda').sum().item())\n")
    done = subprocess.run(
        [sys.executable, "-m", "gapless", "audit", str(script), "--gpu", "H100", "--json"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["syncs_per_step"] == 1
    assert "loss 2.0" in done.stderr
