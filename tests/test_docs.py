"""What the documents say is run: examples, generated pages, links and commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from gapless.cli.main import VERBS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
CODE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in CODE.findall(page.read_text()) if kind == language]


def test_the_examples_of_contributing_run() -> None:
    examples = blocks(ROOT / "CONTRIBUTING.md", "python")
    assert len(examples) >= 3
    once = "from __future__ import annotations\n"
    source = once + "\n".join(example.replace(once, "") for example in examples)
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_named_in_documents_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`gapless ([a-z]+)", text))
    for body in blocks(page, "sh"):
        named |= set(re.findall(r"^gapless ([a-z]+)", body, re.MULTILINE))
    assert named <= set(VERBS)
    targets = set(re.findall(r"`make ([a-z-]+)", text))
    makefile = (ROOT / "Makefile").read_text()
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()


def test_the_page_of_the_api_runs_and_names_everything_public(tmp_path: Path) -> None:
    page = ROOT / "docs" / "api.md"
    text = page.read_text(encoding="utf-8")
    assert {name for name in gapless.__all__ if f"gapless.{name}" not in text} == set()
    assert {name for name in gapless.__all__ if not getattr(gapless, name).__doc__} == set()
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
