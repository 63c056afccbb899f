"""The house rules that keep generic package names safe."""

from __future__ import annotations

import importlib
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHIPPED = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
PACKAGES = [name for name in SHIPPED if not name.endswith(".py")]
MODULES = {Path(name).stem for name in SHIPPED if name.endswith(".py")}


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_the_one_of_this_repository(name: str) -> None:
    assert Path(importlib.import_module(name).__file__ or "").parent == ROOT / name


def test_every_package_is_shipped_checked_and_layered() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert folders == set(PACKAGES)
    assert set(PYPROJECT["tool"]["mypy"]["packages"]) == folders | MODULES
    assert set(PYPROJECT["tool"]["importlinter"]["root_packages"]) == folders


def test_no_file_of_the_dashboard_bears_the_name_of_a_package() -> None:
    # Streamlit puts the folder of its script first on the path.
    names = {path.stem for path in (ROOT / "dashboard").iterdir()}
    assert not names & {*PACKAGES, "tests", "results"}


def test_import_directions_are_part_of_make_test() -> None:
    makefile = (ROOT / "Makefile").read_text()
    lint = makefile.split("\nlint:")[1].split("\n\n")[0]
    assert "lint-imports" in lint
    assert makefile.split("\ntest:")[1].split("##")[0].split() == ["lint"]


def _modules() -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    ]


def test_no_two_modules_share_a_base_name() -> None:
    # A verb of the command line is found under the verb's own name.
    counts = Counter(path.stem for path in _modules() if path.parent.name != "cli")
    assert {name for name, count in counts.items() if count > 1} == set()


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (*_modules(), *(ROOT / "docs").glob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


def test_every_picture_is_on_a_page_and_can_be_taken_again() -> None:
    from tests.browser.screenshots import SHOTS

    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = {path.name for path in (ROOT / "docs" / "img").glob("*.png")}
    assert pictures == {f"{name}.png" for _, name, _, _ in SHOTS}
    assert {name for name in pictures if f"img/{name}" not in text} == set()


def test_what_a_store_keeps_for_itself_is_not_in_git() -> None:
    ignored = (ROOT / ".gitignore").read_text().split()
    assert "/results/*" in ignored
    tracked = subprocess.run(
        ["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("this copy of the project is no git checkout")
    assert not [name for name in tracked.stdout.split() if "/." in name]
