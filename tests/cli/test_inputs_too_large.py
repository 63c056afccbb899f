"""An input that needs too much is told as such, never as a fault of gapless."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.cli import main as command_line
from harness.errors import UsageError
from scenarios import document_files
from scenarios.document_files import read_documents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("error", "words"), [(MemoryError(), "needs more memory"), (RecursionError(), "nested deeper")]
)
def test_memory_and_recursion_are_sentences(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    words: str,
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", fails)
    assert command_line.main(["list"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("content", ["[" * 300_000, '{"traceEvents":' * 100_000, "[1" * 100_000])
def test_deep_files_are_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    path = tmp_path / "deep.json"
    path.write_text(content)
    assert command_line.main(["audit", str(path)]) in (0, 2)
    assert command_line.main(["audit", "x.py:y", "--baseline", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_documents_nested_too_deep_or_too_long_are_told_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "one"}\n' + '{"text": ' + "[" * 200_000 + "\n")
    with pytest.raises(UsageError, match="line 2 is nested too deep"):
        list(read_documents(str(path)))
    monkeypatch.setattr(document_files, "MAX_LINE_BYTES", 100)
    path.write_text('{"text": "one"}\n' + '{"text": "' + "x" * 200 + '"}\n')
    with pytest.raises(UsageError, match="line 2 is longer than"):
        list(read_documents(str(path)))
