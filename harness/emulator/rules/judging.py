"""How one call makes the host wait: the rules of its op, and the Python construct that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.op_events import Wait
from harness.emulator.tensors.reading import current_reading
from harness.record.sync_kinds import SyncKind

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
            named = reading is SyncKind.PRINT_TENSOR or rule.kind is SyncKind.BOOL_BRANCH
            kind = reading if reading and named else rule.kind
            waits.append(Wait(facts.name, kind, syncs, rule.doubt))
    return tuple(waits)


def judge_read(op: str, tensor: EmulatedTensor) -> Wait:
    """The wait of reading one element, known by what it is read for."""
    kind = current_reading() or _kind_of_unnamed_read()
    looks = kind in (SyncKind.SCALAR_READ, SyncKind.BOOL_BRANCH)
    if looks and tensor.allocation.marks == "found_inf":
        kind = SyncKind.FOUND_INF_READ
    return Wait(op, kind, 1)


def _kind_of_unnamed_read() -> SyncKind:
    """Kind of a read that no Python construct made: the argument parser's, or the engine's own."""
    if torch._C._current_graph_task_id() != -1 and torch.is_anomaly_check_nan_enabled():
        return SyncKind.ERROR_CHECK_READ
    return SyncKind.IMPLICIT_SCALAR_ARG
