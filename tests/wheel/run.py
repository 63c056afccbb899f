"""Runs tests against the built wheel, in a fresh environment and from another folder.

    python -m tests.wheel.run [PYTEST ARGUMENTS]

torch and the other packages come from the environment of the Python that runs this, gapless itself
only from the wheel: the folder in which the tests run holds none of its packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dashboard", "gapless", "harness", "optimizations", "scenarios", "pytest_gapless.py")
PARTS = ("tests/wheel", "tests/cli", "tests/audit", "tests/audit_front", "tests/dashboard")
OF_A_CLONE = (
    "tests/cli/test_make.py",
    "tests/cli/test_gpu_check.py",
    "tests/cli/test_other_systems.py",
)
USUAL = (
    "-q", "-n", "2", "-m", "not slow and not gpu and not browser", *PARTS,
    *(f"--ignore={file}" for file in OF_A_CLONE),
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    with tempfile.TemporaryDirectory(prefix="gapless-wheel-") as name:
        folder = Path(name)
        python = install(build(folder), folder / "environment")
        tree = folder / "tree"
        copy_tests(tree)
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
        command = [python, "-m", "pytest", *(arguments or USUAL)]
        return subprocess.call(command, cwd=tree, env=environment)


def copy_tests(tree: Path) -> None:
    """What the tests read beside the packages: themselves, the documents, the settings."""
    tree.mkdir()
    for folder in ("tests", "docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / folder, tree / folder)
    for file in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.txt"), ROOT / "Makefile"):
        shutil.copy(file, tree)


def build(folder: Path) -> Path:
    """The wheel of this clone."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("gapless-*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """A Python that finds the wheel first, and then the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True)
    (packages,) = environment.glob("lib/*/site-packages")
    # A path alone: `.pth` files in that folder, such as that of an editable gapless, are not read.
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
