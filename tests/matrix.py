"""Runs commands and tests in other environments: `python -m tests.matrix [ROW ...]`.

    pinned   the versions of constraints.txt
    lowest   the lowest versions that pyproject.toml allows, from wheels only
    cuda     a torch built for CUDA, on Python 3.13 where there is one, without a GPU
    wheel    the built wheel, from another folder
    newest   the newest of everything; reported, and no failure

Each row gets a fresh environment in a temporary folder, removed afterwards: 2 GB and some minutes
with torch for the CPU, up to 6.5 GB with torch for CUDA, which is what `pip install torch` brings
on Linux.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.wheel import run as wheel_run

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
CUDA_TORCH = "torch==2.14.1"
NEWER_PYTHON = "python3.13"
NEEDED_BYTES = 8 << 30
COMMANDS = (
    ("list",),
    ("audit", "tests/audit_front/scripts/ddp.py"),
    ("audit", "--scenario", "gpt-oss-20b", "--layers", "2"),
    ("report", "--format", "md"),
)
PARTS = tuple(
    f"tests/{part}" for part in ("emulator", "audit", "audit_front", "optimizations", "record")
)


@dataclass(frozen=True)
class Row:
    """One environment."""

    name: str
    constraints: Callable[[], list[str]]
    python: str = sys.executable
    pip: tuple[str, ...] = ()
    blocks: bool = True
    """Whether its failure is one of the matrix."""


def pinned() -> list[str]:
    """The lines of constraints.txt."""
    return (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def lowest() -> list[str]:
    """Each bound of pyproject.toml as a pin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return [need.replace(">=", "==") for need in needs]


def for_cuda() -> list[str]:
    """The pinned versions but for torch, whose pin is a CPU build here or there."""
    return [*(line for line in pinned() if not re.match(r"torch\b", line)), CUDA_TORCH]


ROWS = (
    Row("pinned", pinned),
    Row("lowest", lowest, pip=("--only-binary", ":all:")),
    Row("cuda", for_cuda, python=shutil.which(NEWER_PYTHON) or sys.executable),
    Row("newest", list, pip=("--upgrade", "--upgrade-strategy", "eager"), blocks=False),
)


def main(names: list[str]) -> int:
    """1 where a row that blocks failed, else 0; every row is reported."""
    known = [*(row.name for row in ROWS), "wheel"]
    unknown = set(names) - set(known)
    if unknown:
        print(f"There is no row {', '.join(sorted(unknown))}; choose among {', '.join(known)}.")
        return 2
    results: dict[str, str] = {}
    failed = False
    for row in ROWS:
        if not names or row.name in names:
            results[row.name] = result = carry_out(row)
            failed |= row.blocks and result.startswith("failed")
    if not names or "wheel" in names:
        code = wheel_run.main([])
        results["wheel"] = f"failed ({code})" if code else "passed"
        failed |= bool(code)
    for name in known:
        print(f"{name:8} {results.get(name, 'left out: not asked for')}")
    return int(failed)


def carry_out(row: Row) -> str:
    """`passed`, `failed` and where, or `left out` and why, with the versions that were tried."""
    with tempfile.TemporaryDirectory(prefix=f"gapless-{row.name}-") as name:
        folder = Path(name)
        free = shutil.disk_usage(folder).free
        if free < NEEDED_BYTES:
            return f"left out: {free >> 30} GB are free in {folder.parent}, and it may need 8"
        print(f"== {row.name}: {row.python}", flush=True)
        (folder / "constraints.txt").write_text("\n".join(row.constraints()) + "\n")
        environment = folder / "environment"
        python = environment / "bin" / "python"
        install = (python, "-m", "pip", "install", "--quiet", *row.pip)
        steps = (
            (row.python, "-m", "venv", environment),
            (*install, "-c", folder / "constraints.txt", "hatchling", f"{ROOT}[test]"),
            *((environment / "bin" / "gapless", *words) for words in COMMANDS),
            (python, "-m", "pytest", "-q", "-m", "not slow and not gpu", *PARTS),
        )
        variables = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
        for step in steps:
            words = [str(word) for word in step]
            if subprocess.call(words, cwd=ROOT, env=variables):
                return f"failed at `{' '.join(words[:6])}`{versions(python)}"
        return f"passed{versions(python)}"


def versions(python: Path) -> str:
    """Of Python and of what differs most, as far as they are installed."""
    code = (
        "import platform, importlib.metadata as m\n"
        "names = ('torch', 'transformers', 'peft', 'numpy', 'pandas', 'msgspec')\n"
        "print('Python', platform.python_version(), *(f'{n} {m.version(n)}' for n in names))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return f", {done.stdout.strip()}" if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
