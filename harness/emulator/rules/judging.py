"""How one call makes the host wait: the rules of its op, and the Python construct that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.op_events import Wait
from harness.emulator.tensors.reading import current_reading

if TYPE_CHECKING:
    from harness.emulator.tensors.op_facts import OpFacts
    from harness.emulator.tensors.tensor import EmulatedTensor


def judge(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Wait, ...]:
    """The waits of a call by its op's rules."""
    waits = []
    for rule in facts.rules:
        syncs = rule.syncs(args, kwargs)
        if syncs:
            reading = current_reading()
            named = reading == "print_tensor" or rule.kind == "bool_branch"
            kind = reading if reading and named else rule.kind
            waits.append(Wait(facts.name, kind, syncs, rule.doubt))
    return tuple(waits)


def judge_read(op: str, tensor: EmulatedTensor) -> Wait:
    """The wait of reading one element, known by what it is read for."""
    kind = current_reading() or _kind_of_unnamed_read()
    if tensor.allocation.marks == "found_inf" and kind in ("scalar_read", "bool_branch"):
        kind = "found_inf_read"
    return Wait(op, kind, 1)


def _kind_of_unnamed_read() -> str:
    """Kind of a read that no Python construct made: the argument parser's, or the engine's own."""
    if torch._C._current_graph_task_id() != -1 and torch.is_anomaly_check_nan_enabled():
        return "error_check_read"
    return "implicit_scalar_arg"
