"""The rules as data: every one has evidence, holds for stated versions, and names a known kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from harness.emulator.rules.derivative_rules import DERIVATIVE_RULES
from harness.emulator.rules.sync_rules import RULES, rules_for, running_torch_version
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.emulator.tensors.op_facts import Rule

ALL_RULES = (*RULES, *(rule for rules in DERIVATIVE_RULES.values() for rule in rules))


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: f"{rule.op}-{rule.kind}")
def test_each_rule_is_whole(rule: Rule) -> None:
    assert rule.evidence
    assert rule.condition
    assert rule.confidence in ("high", "medium", "low")
    assert isinstance(rule.kind, SyncKind)
    if rule.until is not None and running_torch_version() >= rule.until:
        pytest.skip(f"torch {rule.until} and newer have no such op, or do not wait in it")
    namespace, name = rule.op.split("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    assert packet is not None, "the op exists in this torch"
    if rule.overload is not None:
        assert rule.overload in packet.overloads()


def test_version_bounds_are_honoured() -> None:
    assert rules_for("aten::cholesky", "default", (2, 13))
    assert not rules_for("aten::cholesky", "default", (2, 14))
    assert rules_for("aten::cholesky_inverse", "default", (2, 14))
    assert running_torch_version() >= (2, 10)


def test_overloads_are_told_apart() -> None:
    assert rules_for("aten::masked_fill", "Tensor", (2, 13))
    assert not rules_for("aten::masked_fill", "Scalar", (2, 13))
    assert not rules_for("aten::add", "Tensor", (2, 13))
