"""No file outside `optimizations/` names an optimization: what they are asked stands in theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from optimizations.optimization_catalogue import names

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("gapless", "harness", "scenarios", "dashboard", "benchmarks", "examples")
DATA = {"scenarios/published.py", "scenarios/published_setups.py"}
"""What others published, as data."""
FILES = [
    path
    for place in PLACES
    for path in sorted((ROOT / place).rglob("*"))
    if path.suffix in (".py", ".toml", ".json") and str(path.relative_to(ROOT)) not in DATA
]


@pytest.mark.parametrize("name", names())
def test_no_file_elsewhere_names_it(name: str) -> None:
    naming = [str(path.relative_to(ROOT)) for path in FILES if name in path.read_text()]
    assert naming == []


def test_no_module_of_an_optimization_is_imported_elsewhere() -> None:
    """The catalogue is the way in; what asks a model for its implementations serves any fix."""
    shared = {"optimizations.optimization_catalogue", "optimizations.implementation_switch"}
    found = {
        (str(path.relative_to(ROOT)), node.module)
        for place in PLACES[:4]
        for path in (ROOT / place).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optimizations")
    }
    assert {module for _, module in found} <= shared, found
