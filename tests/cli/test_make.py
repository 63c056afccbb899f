"""`make` from a clean clone: one sentence where something is missing, one installation in all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_without_python_it_says_what_to_install(tmp_path: Path) -> None:
    done = make("reproduce", f"VENV={tmp_path}/venv", "PYTHON=no-such-python")
    assert done.returncode != 0
    assert done.stdout.startswith("gapless needs Python 3.11 or newer: 'no-such-python' is not")
    assert len(done.stdout.strip().splitlines()) == 1


def test_an_older_python_is_named(tmp_path: Path) -> None:
    older = script(tmp_path / "old", "exit 1")
    done = make("test", f"VENV={tmp_path}/venv", f"PYTHON={older}")
    assert done.returncode != 0
    assert done.stdout.strip().splitlines() == [
        (
            f"gapless needs Python 3.11 or newer, and {older} is older; "
            "run make PYTHON=/path/to/python3.11."
        )
    ]


def test_it_installs_once_and_again_only_after_a_change(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    log = tmp_path / "log"
    # Stands for Python: creating the environment puts a pip and a gapless there that only log.
    python = script(
        tmp_path / "python",
        f'if [ "$2" = venv ]; then mkdir -p {venv}/bin; cp {tmp_path}/tool {venv}/bin/pip; '
        f"cp {tmp_path}/tool {venv}/bin/gapless; fi",
    )
    script(tmp_path / "tool", f'echo "$(basename $0) $1" >> {log}')
    settings = (f"VENV={venv}", f"PYTHON={python}")
    assert make("reproduce", *settings).returncode == 0
    assert make("reproduce", *settings).returncode == 0
    assert log.read_text().splitlines() == ["pip install", "gapless reproduce", "gapless reproduce"]
    assert make("-W", "constraints.txt", "reproduce", *settings).returncode == 0
    assert log.read_text().splitlines()[3:] == ["pip install", "gapless reproduce"]


def test_a_failed_installation_is_not_taken_for_done(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    python = script(
        tmp_path / "python",
        f'if [ "$2" = venv ]; then mkdir -p {venv}/bin; cp {tmp_path}/pip {venv}/bin/pip; fi',
    )
    script(tmp_path / "pip", "exit 1")
    done = make("reproduce", f"VENV={venv}", f"PYTHON={python}")
    assert done.returncode != 0
    assert "The packages could not be installed" in done.stdout
    assert not (venv / ".installed").exists()
