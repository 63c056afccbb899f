"""Derivatives that read the device on CUDA, and do not for the emulated tensor.

For a tensor subclass torch takes a formula without reads, since it cannot know the subclass. So the
read is told by a hook on the node, where it would happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.rules.derivative_rules import DERIVATIVE_RULES
from harness.emulator.tensors.op_events import Wait
from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.op_facts import Rule
    from harness.emulator.tensors.patches import Patches


def patch_derivatives(patches: Patches, observers: Observers) -> None:
    """Let backward passes through these functions tell `observers` what they read."""
    for name, rules in DERIVATIVE_RULES.items():
        for owner in (torch, EmulatedTensor):
            if hasattr(owner, name):
                patches.wrap(owner, name, _telling(rules, observers))


def _telling(rules: tuple[Rule, ...], observers: Observers) -> Callable[..., Any]:
    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if type(result) is EmulatedTensor and result.grad_fn is not None:
            waits = [
                Wait(rule.op, rule.kind, syncs)
                for rule in rules
                if (syncs := rule.syncs(args, kwargs))
            ]
            if waits:
                # The hook holds no tensor, so that the graph frees its memory as without it.
                result.grad_fn.register_prehook(lambda _: observers.tell_unseen(waits))
        return result

    return around
