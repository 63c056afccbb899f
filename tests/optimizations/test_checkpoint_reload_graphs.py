"""Offload while graphs wait, are dropped, fail, or outlive the attachment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from optimizations.checkpoint_reload import CheckpointReload
from optimizations.copy_engine import ThreadCopyEngine
from tests.optimizations.checkpoint_stack import (
    StackLayer,
    assert_same_bits,
    make_stack,
    rows,
    step,
    take_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Callable


from tests.optimizations.test_checkpoint_reload import (
    ALL,
    NUM_LAYERS,
    OFFLOADING,
    ROW_BYTES,
    VARIANTS,
)


@pytest.mark.parametrize("variant", OFFLOADING)
def test_two_forwards_then_two_backwards_in_either_order(variant: str) -> None:
    model = make_stack()

    def both(order: tuple[int, int]) -> dict[str, torch.Tensor]:
        torch.manual_seed(7)
        losses = [model(rows(8, seed=0)), model(rows(5, seed=1))]
        for index in order:
            losses[index].backward()
        return take_gradients(model)

    expected = {order: both(order) for order in ((0, 1), (1, 0))}
    joint = step(model, rows(8), rows(5))
    attachment = ALL.attach(model)
    attachment.select(variant)
    for order, wanted in expected.items():
        assert_same_bits(both(order), wanted)
    assert_same_bits(step(model, rows(8), rows(5)), joint)
    attachment.detach()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_retained_graph_can_be_walked_again(variant: str) -> None:
    model = make_stack()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    attachment.select(variant)
    torch.manual_seed(7)
    loss = model(rows(8))
    for retain in (True, True, False):
        loss.backward(retain_graph=retain)
        assert_same_bits({"loss": loss.detach(), **take_gradients(model)}, expected)
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_second_order_gradients_are_those_of_plain(variant: str) -> None:
    model = make_stack()

    def second_order() -> dict[str, torch.Tensor]:
        torch.manual_seed(7)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(
            model(rows(8)), parameters, create_graph=True, allow_unused=True
        )
        penalty = torch.stack([g.square().sum() for g in gradients if g is not None]).sum()
        del gradients
        # In between, other layers' inputs pass through the buffers.
        step(model, rows(8, seed=5))
        penalty.backward()
        return take_gradients(model)

    attachment = ALL.attach(model)
    attachment.select("plain")
    expected = second_order()
    attachment.select(variant)
    assert_same_bits(second_order(), expected)
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_evaluation_moves_nothing(variant: str) -> None:
    model = make_stack()
    attachment = ALL.attach(model)
    attachment.select(variant)
    with torch.no_grad():
        model(rows(8))
    model.eval()
    model(rows(8)).backward()
    assert attachment.host_buffer_bytes() == 0
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_forward_without_backward_gives_its_buffers_back(variant: str) -> None:
    model = make_stack()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    attachment.select(variant)
    inputs: list[StorageWeakRef] = []
    for layer in model.layers:
        layer.probe = lambda _, hidden: inputs.append(StorageWeakRef(hidden.untyped_storage()))
    for _ in range(4):
        model(rows(8))
        # `prefetch` holds what it has not waited for, and nothing holds the graph. A copy worker
        # drops its task a moment after it has told that the copy is done.
        held_until = time.monotonic() + 10
        while (held := sum(not ref.expired() for ref in inputs)) > (variant == "prefetch"):
            assert time.monotonic() < held_until, f"{held} inputs are still held"
    assert_same_bits(step(model, rows(8)), expected)
    assert attachment.host_buffer_bytes() == (NUM_LAYERS - 1) * 8 * ROW_BYTES
    attachment.detach()


@pytest.mark.parametrize("fails_in", ["forward", "recompute"])
@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_layer_that_raises_leaves_nothing_stuck(variant: str, fails_in: str) -> None:
    model = make_stack()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    attachment.select(variant)
    step(model, rows(8))
    host_bytes, device_bytes = attachment.host_buffer_bytes(), attachment.device_buffer_bytes()

    def fail(index: int, hidden: torch.Tensor) -> None:
        raise ArithmeticError("the layer fails")

    for _ in range(4):
        if fails_in == "forward":
            model.layers[3].probe = fail
            with pytest.raises(ArithmeticError, match="the layer fails"):
                model(rows(8))
        else:
            loss = model(rows(8))
            model.layers[1].probe = fail
            with pytest.raises(ArithmeticError, match="the layer fails"):
                loss.backward()
            del loss
            take_gradients(model)
        for layer in model.layers:
            layer.probe = None
    assert_same_bits(step(model, rows(8)), expected)
    assert attachment.device_buffer_bytes() == device_bytes
    # Autograd keeps one node of a backward that failed in its queue until the next backward.
    assert attachment.host_buffer_bytes() <= host_bytes + 8 * ROW_BYTES
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_an_input_written_to_after_the_call_is_an_error(variant: str) -> None:
    model = make_stack()

    def overwrite(layer: StackLayer, hidden: torch.Tensor) -> Any:
        outputs = layer(hidden)
        if layer.index == 2:
            with torch.no_grad():
                hidden.add_(1)
        return outputs

    model.call = overwrite
    attachment = ALL.attach(model)
    attachment.select(variant)
    with pytest.raises(RuntimeError, match="modified in place"):
        model(rows(8)).backward()
    attachment.detach()


def test_a_variant_may_be_selected_between_forward_and_backward() -> None:
    model = make_stack()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    for first, second in (("prefetch", "single-buffer"), ("double-buffer", "plain")):
        attachment.select(first)
        torch.manual_seed(7)
        loss = model(rows(8))
        attachment.select(second)
        loss.backward()
        assert_same_bits({"loss": loss.detach(), **take_gradients(model)}, expected)
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_graph_outlives_detach(variant: str) -> None:
    model = make_stack()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    attachment.select(variant)
    torch.manual_seed(7)
    loss = model(rows(8))
    attachment.detach()
    loss.backward()
    assert_same_bits({"loss": loss.detach(), **take_gradients(model)}, expected)


class FailingEngine(ThreadCopyEngine):
    """Fails the copies that `fails` picks, counted from 0."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        super().__init__(shared_lane=True)
        self._fails = fails
        self.num_copies = 0

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        index, self.num_copies = self.num_copies, self.num_copies + 1
        if self._fails(index):
            raise OSError(f"copy {index} fails")
        super().copy(source, target)


@pytest.mark.parametrize("variant", OFFLOADING)
@pytest.mark.parametrize("failing", [0, 2, 4, 6])
def test_a_failed_copy_is_raised_where_it_is_waited_for(variant: str, failing: int) -> None:
    engine = FailingEngine(lambda index: index == failing)
    settings = CheckpointReload(min_bytes=0, open_engine=lambda device, *, shared_lane: engine)
    model = make_stack()
    expected = step(model, rows(8))
    attachment = settings.attach(model)
    attachment.select(variant)
    with pytest.raises(OSError, match=f"copy {failing} fails") as raised:
        step(model, rows(8))
    assert "copy" in [entry.name for entry in raised.traceback]
    take_gradients(model)
    del raised
    assert_same_bits(step(model, rows(8)), expected)
    attachment.detach()
