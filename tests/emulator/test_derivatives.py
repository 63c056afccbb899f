"""Derivatives that read the device: torch's own, as a profile of the CPU shows, are those told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.emulator.device import EmulatedDevice
from harness.emulator.rules.sync_rules import DERIVATIVE_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.op_events import OpEvent

Step = tuple["Callable[..., torch.Tensor]", tuple[tuple[int, ...], ...]]

STEPS: dict[str, Step] = {
    "product of all": (lambda x: x.prod(), ((2, 3),)),
    "product along": (lambda x: torch.prod(x, dim=1), ((2, 3),)),
    "product of one": (lambda x: x.prod(0, keepdim=True), ((1,),)),
    "product of a scalar": (lambda x: x.prod(), ((),)),
    "cumulative": (lambda x: torch.cumprod(x, dim=-1), ((2, 3),)),
    "cumulative along one": (lambda x: x.cumprod(0), ((1, 3),)),
    "fill by a learned value": (lambda x, v: x.masked_fill(torch.eye(2, device=x.device) > 0, v),
                                ((2, 2), ())),
    "fill in place": (lambda x, v: (x * 1).masked_fill_(torch.eye(2, device=x.device) > 0, v),
                      ((2, 2), ())),
    "fill by a number": (lambda x: x.masked_fill(torch.eye(2, device=x.device) > 0, 1.0),
                         ((2, 2),)),
}  # fmt: skip
READS = {rule.op for rules in DERIVATIVE_RULES.values() for rule in rules}


class Waits:
    wants_every_op = False

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()

    def on_event(self, event: OpEvent) -> None:
        self.seen.update({(event.phase, wait.op): wait.syncs for wait in event.waits})

    def on_stream_action(self, action: Any) -> None:
        """Nothing here runs on streams."""


def loss_of(name: str, device: str) -> torch.Tensor:
    call, shapes = STEPS[name]
    return call(*(torch.rand(s, device=device).requires_grad_() for s in shapes)).sum()


@pytest.mark.parametrize("shapes_only", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_told_reads_are_those_of_torch(name: str, shapes_only: bool) -> None:
    loss = loss_of(name, "cpu")
    # Without `acc_events` the profiler of torch up to 2.12 warns of what it forgets.
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
    ) as profile:
        loss.backward()
    by_torch = {e.key: e.count for e in profile.key_averages() if e.key in READS}
    if name.startswith("fill"):
        # The CPU kernel reads the host number it fills with; CUDA takes it as an argument.
        by_torch.pop("aten::_local_scalar_dense", None)

    waits = Waits()
    device = EmulatedDevice(shapes_only=shapes_only)
    device.add_observer(waits)
    with device:
        loss_of(name, "cuda").backward()

    told = {op: count for (phase, op), count in waits.seen.items() if phase == "backward"}
    assert told == by_torch


def test_a_graph_holds_no_tensor_for_the_sake_of_counting() -> None:
    with EmulatedDevice():
        x = torch.rand(1024, device="cuda", requires_grad=True)
        (x * 2).prod().backward()
        before = torch.cuda.memory_allocated()
        product = (x * 2).prod()
        product.backward()
        assert torch.cuda.memory_allocated() - before == 512  # the product itself


def test_functions_are_put_back() -> None:
    before = torch.prod, torch.Tensor.prod
    with EmulatedDevice():
        assert torch.prod is not before[0]
    assert (torch.prod, torch.Tensor.prod) == before
