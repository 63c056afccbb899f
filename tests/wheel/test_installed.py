"""What an installed gapless is: complete, typed, and nowhere but in its environment."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.published_models import SETUPS, published_models
from harness import origin
from tests.wheel.run import PACKAGES, ROOT

pytestmark = pytest.mark.skipif(
    str(ROOT) == origin.HOME, reason="gapless is a clone here; `make test-wheel` installs it"
)


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_that_of_the_environment(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".py"))
    assert Path(str(module.__file__)).is_relative_to(sys.prefix)
    if module.__file__ and module.__file__.endswith("__init__.py"):
        assert Path(module.__file__).with_name("py.typed").is_file()


def test_the_wheel_says_what_it_needs() -> None:
    found = importlib.metadata.distribution("gapless")
    assert Path(str(found.locate_file(""))).is_relative_to(sys.prefix)
    needs = [need for need in found.requires or () if "extra" not in need]
    assert all(">=" in need for need in needs)
    assert {need.partition(">=")[0] for need in needs} >= {"torch", "transformers", "peft"}


def test_the_records_of_the_published_rows_are_in_it() -> None:
    assert len(published_models()) == sum(map(len, SETUPS.values()))


def test_no_frame_of_gapless_stands_in_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--scenario", "gpt-oss-20b", "--layers", "2", "--json"]) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed)
    places = [
        origin.below_packages(str(place))
        for entry in (*report["sites"], *report["findings"])
        for place in (entry.get("file"), entry.get("library"))
        if place
    ]
    assert any(place.startswith("transformers/") for place in places)
    assert not [place for place in places if place.startswith(("harness/", "gapless/"))]
