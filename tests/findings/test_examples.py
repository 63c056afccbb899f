"""The examples show what they say: the finding, the waits that go, and results that stay."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.audit.emulated.emulated_audit import audit_target

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "switch", "kind", "syncs"),
    [
        # Three per expert and layer forward, one backward; then one read per layer.
        ("moe_polling_loop", {"grouped": (False, True)}, "polling-loop", (4 * 32 * 2, 2)),
        # Two bounds per document and layer; then one read per step.
        ("packed_cu_seqlens", {"on_host": (False, True)}, "rebuilt-metadata", (2 * 6 * 8, 1)),
        # One per parameter; then none.
        ("optimizer_reads", {"clip": ("clip_before", "clip_after")}, "scalar-read", (48, 0)),
    ],
)
def test_before_and_after(name: str, switch: Any, kind: str, syncs: tuple[int, int]) -> None:
    example, comparing = load(name), load("comparing")
    ((keyword, values),) = switch.items()
    builds = [
        partial(example.build, **{keyword: getattr(example, v) if isinstance(v, str) else v})
        for v in values
    ]

    found = comparing.compare(*builds)

    assert (found.syncs_before, found.syncs_after) == syncs
    assert found.kinds_before[0] == kind
    assert kind not in found.kinds_after
    assert found.largest_difference <= 1e-5


@pytest.mark.parametrize(
    "file", sorted(p.name for p in FOLDER.glob("*.py") if p.stem != "comparing")
)
def test_the_commands_in_its_head_work(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    for name in ("build_before", "build_after"):
        assert f"gapless audit examples/{file}:{name}" in text
        assert audit_target(f"{FOLDER / file}:{name}").steps == 1
