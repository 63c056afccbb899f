"""What works where Windows lacks parts of Linux, with these parts taken away.

The libraries are loaded as they are here; what is looked at is this project's own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.origin import HOME

if TYPE_CHECKING:
    from pathlib import Path

IMPORT_ALL = """
import json, pkgutil, sys
from importlib import import_module

for package in ("harness", "optimizations", "scenarios", "dashboard", "gapless"):
    for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        if found.name not in ("gapless.__main__", "dashboard.app", "dashboard.asgi"):
            import_module(found.name)
import pytest_gapless
"""
LIST_LIBRARIES = """
import psutil, torch._dynamo
from gapless.cli.main import main

main(["list"])
own = ("harness", "optimizations", "scenarios", "dashboard", "gapless", "pytest_gapless", "__")
with open("libraries.json", "w") as file:
    json.dump([name for name in sys.modules if not name.startswith(own)], file)
"""
TAKE_AWAY = """
import contextlib, json, os, signal, sys
from importlib import import_module

for name in json.load(open("libraries.json")):
    with contextlib.suppress(Exception):
        import_module(name)
ABSENT = {"resource", "fcntl", "pwd", "grp", "termios"}

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Lacking())
for name in ("killpg", "getpgrp", "sysconf", "getloadavg", "sched_getaffinity", "set_blocking"):
    delattr(os, name)
for name in ("SIGKILL", "pthread_kill"):
    delattr(signal, name)
sys.platform = "win32"
"""
COMMANDS = """
from gapless.cli.main import main

for words in json.loads(sys.argv[1]):
    print("exit", main(words), flush=True)
"""
STEP = """
import torch

def build():
    x = torch.ones(3, device="cuda", requires_grad=True)
    return lambda: (x * 2).sum().backward() or x.grad.sum().item()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `libraries.json` names all modules but our own that our modules load."""
    folder = tmp_path_factory.mktemp("system")
    (folder / "step.py").write_text(STEP)
    done = run_python(IMPORT_ALL + LIST_LIBRARIES, folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_python(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "GAPLESS_STORE"}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": HOME, "USERPROFILE": str(folder), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def exits(folder: Path, *commands: str) -> tuple[list[str], str]:
    words = json.dumps([command.split() for command in commands])
    done = run_python(TAKE_AWAY + COMMANDS, folder, words)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("exit ")], done.stderr


def test_every_module_can_be_imported(folder: Path) -> None:
    done = run_python(TAKE_AWAY + IMPORT_ALL, folder)
    assert done.returncode == 0, done.stderr


def test_what_needs_no_timing_works(folder: Path) -> None:
    codes, errors = exits(
        folder, "list", "report --format md", "export team.html", "audit step.py:build --json"
    )
    assert codes == ["exit 0"] * 4, errors
    assert (folder / "team.html").stat().st_size > 100_000


def test_what_needs_timing_says_where_it_works(folder: Path) -> None:
    codes, errors = exits(
        folder,
        "bench qwen3-0.6b-packed-sft --ladder",
        "model qwen3-0.6b-packed-sft --gpu B200 --arm packed-metadata=cached",
        "reproduce --quick",
    )
    assert codes == ["exit 2"] * 3, errors
    assert errors.count("gapless: Timed and modelled runs need Linux or macOS") == 3
