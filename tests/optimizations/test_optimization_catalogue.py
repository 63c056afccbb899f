"""The catalogue is complete, lazy, and says what it has."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.errors import UsageError
from optimizations.optimization_catalogue import create, names

if TYPE_CHECKING:
    from harness.workload import Optimization


@pytest.mark.parametrize("name", names())
def test_every_name_makes_the_optimization_of_that_name(name: str) -> None:
    optimization: Optimization = create(name)
    assert optimization.name == name
    roles = [variant.role for variant in optimization.variants]
    assert roles.count("baseline") == roles.count("published") == 1
    assert optimization.summary.endswith(".")
    assert optimization.trade_off.endswith(".")


def test_the_attention_backend_reaches_packed_metadata() -> None:
    assert create("packed-metadata", attention="varlen") != create("packed-metadata")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="packed-metadata, checkpoint-reload, moe-routing"):
        create("nothing")


def test_names_and_answers_are_known_without_torch() -> None:
    code = (
        "import sys; from optimizations import optimization_catalogue as catalogue;"
        "assert catalogue.names() and catalogue.answers() and catalogue.attention_owners();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
