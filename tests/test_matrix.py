"""The rows of the matrix are made from the files that users install by."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests import matrix

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_dependency_has_a_lowest_version_and_the_pins_are_above_it() -> None:
    lowest = dict(pin.split("==") for pin in matrix.lowest())
    pinned = dict(pin.split("==") for pin in matrix.pinned() if not pin.startswith("#"))
    needed = [need.partition(">=")[0] for need in PROJECT["dependencies"]]
    assert set(lowest) >= {*needed, "pytest", "httpx2"}
    for name, version in lowest.items():
        assert as_numbers(pinned[name]) >= as_numbers(version), name


def as_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def test_the_row_for_cuda_differs_in_torch_alone() -> None:
    assert set(matrix.for_cuda()) ^ set(matrix.pinned()) == {
        matrix.CUDA_TORCH,
        next(pin for pin in matrix.pinned() if pin.startswith("torch==")),
    }


def test_the_dashboards_packages_have_the_same_bounds() -> None:
    extra = PROJECT["optional-dependencies"]
    # A server for a team asks for a login besides.
    login = {one for one in extra["browser"] if one.startswith("Authlib")}
    assert login < set(extra["dashboard"])
    assert set(extra["dashboard"]) - login < set(PROJECT["dependencies"])


def test_an_unknown_row_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["oldest"]) == 2
    assert "no row oldest" in capsys.readouterr().out
