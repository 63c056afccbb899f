"""No order in which copies, layers and graphs can run shows a layer another layer's input."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizations.checkpoint_reload import CheckpointReload
from optimizations.copy_engine import ThreadCopyEngine
from optimizations.device_ring import DeviceRing
from tests.optimizations.checkpoint_stack import (
    WIDTH,
    assert_same_bits,
    make_stack,
    rows,
    step,
    take_gradients,
)
from tests.optimizations.scheduled_engine import ScheduledCopy, ScheduledCopyEngine

if TYPE_CHECKING:
    from optimizations.checkpoint_reload import CheckpointReloadAttachment
    from optimizations.copy_engine import CopyEngine
    from tests.optimizations.checkpoint_stack import Stack

OFFLOADING = ("single-buffer", "double-buffer", "prefetch")
NUM_LAYERS = 5
INPUT_BYTES = 8 * WIDTH * 8


def attach(
    model: Stack, variant: str, engine: CopyEngine, **options: Any
) -> CheckpointReloadAttachment:
    optimization = CheckpointReload(
        min_bytes=0, open_engine=lambda device, *, shared_lane: engine, **options
    )
    attachment = optimization.attach(model)
    attachment.select(variant)
    return attachment


@dataclass(frozen=True)
class Forward:
    num_rows: int


@dataclass(frozen=True)
class Backward:
    """Through the oldest graph or the newest, or through both at once."""

    which: str
    retain: bool


@dataclass(frozen=True)
class Drop:
    """Forget the oldest graph without a backward."""


Program = list[Forward | Backward | Drop]

actions = st.one_of(
    st.builds(Forward, num_rows=st.sampled_from([1, 4, 9])),
    st.builds(Backward, which=st.sampled_from(["oldest", "newest", "both"]), retain=st.booleans()),
    st.builds(Drop),
)
programs = st.lists(actions, min_size=1, max_size=10).map(lambda rest: [Forward(4), *rest])


def run(model: Stack, program: Program) -> list[dict[str, torch.Tensor]]:
    """Gradients after each backward of the program; actions without a graph do nothing."""
    torch.manual_seed(7)
    graphs: list[torch.Tensor] = []
    seen: list[dict[str, torch.Tensor]] = []
    for index, action in enumerate(program):
        if isinstance(action, Forward):
            graphs.append(model(rows(action.num_rows, seed=index)))
        elif isinstance(action, Drop):
            del graphs[:1]
        elif graphs:
            chosen = {"oldest": graphs[:1], "newest": graphs[-1:], "both": graphs[:2]}[action.which]
            torch.stack(chosen).sum().backward(retain_graph=action.retain)
            seen.append(take_gradients(model))
            if not action.retain:
                kept = {id(loss) for loss in chosen}
                graphs = [loss for loss in graphs if id(loss) not in kept]
            del chosen
    return seen


@settings(max_examples=120, deadline=None)
@given(
    program=programs,
    delays=st.lists(st.integers(0, 3), max_size=12),
    variant=st.sampled_from(OFFLOADING),
    keep_last=st.integers(0, 2),
    prefetch_depth=st.integers(1, 3),
    max_deferred_waits=st.integers(0, 3),
)
def test_any_schedule_of_copies_gives_the_bits_of_plain(
    program: Program,
    delays: list[int],
    variant: str,
    keep_last: int,
    prefetch_depth: int,
    max_deferred_waits: int,
) -> None:
    model = make_stack(NUM_LAYERS)
    expected = run(model, program)
    attachment = attach(
        model,
        variant,
        ScheduledCopyEngine(delays),
        keep_last=keep_last,
        prefetch_depth=prefetch_depth,
        max_deferred_waits=max_deferred_waits,
    )
    actual = run(model, program)
    attachment.detach()
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_copy_starts_after_the_last_copy_of_its_host_buffer(variant: str) -> None:
    model = make_stack(NUM_LAYERS)
    engine = ScheduledCopyEngine()
    attachment = attach(model, variant, engine)
    for _ in range(3):
        step(model, rows(8))
    last: dict[int | None, ScheduledCopy] = {}
    for copy in engine.copies:
        assert copy.host not in last or last[copy.host] in copy.after
        last[copy.host] = copy
    assert len(last) == NUM_LAYERS - 1
    # `prefetch` uses the input whose offload it has not waited for without a reload.
    assert len(engine.copies) == 3 * (2 * len(last) - (variant == "prefetch"))
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_reload_that_is_not_waited_for_is_noticed(variant: str) -> None:
    model = make_stack(NUM_LAYERS)
    expected = step(model, rows(8))
    attach(model, variant, ScheduledCopyEngine(broken_waits=frozenset({"reload"})))
    with pytest.raises(AssertionError, match="differs"):
        assert_same_bits(step(model, rows(8)), expected)


@pytest.mark.parametrize("variant", OFFLOADING)
def test_an_offload_that_is_not_waited_for_is_noticed(variant: str) -> None:
    model = make_stack(NUM_LAYERS)
    attach(model, variant, ScheduledCopyEngine(broken_waits=frozenset({"offload"})))
    with pytest.raises(AssertionError, match="let go before the copy ran"):
        step(model, rows(8))


def test_a_prefetch_into_a_slot_in_use_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    next_slot = DeviceRing._next_slot

    def any_slot(self: DeviceRing, num_bytes: int, *, take_back: bool) -> Any:
        return next_slot(self, num_bytes, take_back=True)

    model = make_stack(NUM_LAYERS)
    expected = step(model, rows(8))
    attach(model, "prefetch", ScheduledCopyEngine(free_bytes=0))
    assert_same_bits(step(model, rows(8)), expected)
    monkeypatch.setattr(DeviceRing, "_next_slot", any_slot)
    with pytest.raises(AssertionError, match="differs"):
        assert_same_bits(step(model, rows(8)), expected)


class DelayedEngine(ThreadCopyEngine):
    """Real worker threads, each copy later by a random time that the seed decides."""

    def __init__(self, seed: int, *, shared_lane: bool) -> None:
        super().__init__(shared_lane=shared_lane)
        self._random = random.Random(seed)

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        time.sleep(self._random.choice([0.0, 0.0, 0.001, 0.003]))
        super().copy(source, target)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("variant", OFFLOADING)
def test_threads_that_are_late_at_random_give_the_bits_of_plain(variant: str, seed: int) -> None:
    model = make_stack(NUM_LAYERS)
    sizes = [(8, 3), (64,), (16, 16)]
    expected = [step(model, *(rows(size) for size in pair)) for pair in sizes]
    attachment = attach(model, variant, DelayedEngine(seed, shared_lane=variant != "prefetch"))
    for pair, wanted in zip(sizes, expected, strict=True):
        assert_same_bits(step(model, *(rows(size) for size in pair)), wanted)
    attachment.detach()


def calls_of_a_step(variant: str, **options: Any) -> list[str]:
    """What a step asks of the engine, with a mark where each layer recomputes."""
    model = make_stack(NUM_LAYERS)
    engine = ScheduledCopyEngine()
    attachment = attach(model, variant, engine, **options)
    loss = model(rows(8))
    engine.calls.append("backward")
    for layer in model.layers:
        layer.probe = lambda index, _: engine.calls.append(f"layer {index}")
    loss.backward()
    calls = list(engine.calls)
    attachment.detach()
    return calls


def test_prefetch_issues_the_next_reload_before_a_layer_recomputes() -> None:
    calls = calls_of_a_step("prefetch", max_deferred_waits=0)
    assert calls[calls.index("backward") :] == [
        "backward",
        "reload",  # of layer 3, while layer 4 recomputes from the input that stayed
        "layer 4",
        "reload",
        "wait-reload",
        "layer 3",
        "reload",
        "wait-reload",
        "layer 2",
        "reload",
        "wait-reload",
        "layer 1",
        "wait-reload",
        "layer 0",
    ]


@pytest.mark.parametrize("variant", ["single-buffer", "double-buffer"])
def test_published_variants_reload_when_the_layer_itself_begins(variant: str) -> None:
    calls = calls_of_a_step(variant)
    after = calls[calls.index("backward") + 1 :]
    expected = ["layer 4"]
    for index in (3, 2, 1, 0):
        expected += ["reload", "wait-reload", f"layer {index}"]
    assert after == expected


def test_forward_waits_for_an_offload_in_its_layer_or_one_layer_later() -> None:
    def forward(variant: str) -> list[str]:
        calls = calls_of_a_step(variant)
        return calls[: calls.index("backward")]

    assert forward("double-buffer") == ["offload", "wait-offload"] * 4
    assert forward("prefetch") == ["offload", *["offload", "wait-offload"] * 3]


@pytest.mark.parametrize("variant", ["double-buffer", "prefetch"])
def test_little_free_memory_means_one_buffer_and_a_reason(variant: str) -> None:
    model = make_stack(NUM_LAYERS)
    expected = step(model, rows(8))
    engine = ScheduledCopyEngine([0, 1], free_bytes=512 * 2**20 - 1)
    attachment = attach(model, variant, engine)
    for _ in range(2):
        assert_same_bits(step(model, rows(8)), expected)
    assert attachment.device_buffer_bytes() == INPUT_BYTES
    (reason,) = attachment.shortages()
    assert reason.startswith(f"{variant} on cpu: one device buffer instead of 2, because")
    engine.free_bytes = 512 * 2**20
    attachment.select("plain")
    attachment.select(variant)
    step(model, rows(8))
    assert attachment.device_buffer_bytes() == 2 * INPUT_BYTES
    assert attachment.shortages() == ()
    attachment.detach()


@pytest.mark.parametrize("variant", ["double-buffer", "prefetch"])
def test_running_out_of_memory_while_growing_falls_back_to_one_buffer(variant: str) -> None:
    model = make_stack(NUM_LAYERS)
    expected = [step(model, rows(size)) for size in (4, 8)]
    engine = ScheduledCopyEngine([1, 0], allocation_limit=INPUT_BYTES + INPUT_BYTES // 2)
    attachment = attach(model, variant, engine)
    assert_same_bits(step(model, rows(4)), expected[0])
    assert attachment.shortages() == ()
    for _ in range(2):
        assert_same_bits(step(model, rows(8)), expected[1])
    assert attachment.device_buffer_bytes() == INPUT_BYTES
    assert "no room for another 384 bytes" in attachment.shortages()[0]
    attachment.detach()


def test_no_room_for_a_single_input_is_the_error_of_torch() -> None:
    model = make_stack(NUM_LAYERS)
    attachment = attach(model, "prefetch", ScheduledCopyEngine(allocation_limit=INPUT_BYTES - 1))
    with pytest.raises(torch.OutOfMemoryError):
        step(model, rows(8))
    attachment.detach()


def test_an_input_written_to_while_its_copy_is_under_way_is_an_error() -> None:
    model = make_stack()
    inputs: list[torch.Tensor] = []

    def overwrite(layer: Any, hidden: torch.Tensor) -> Any:
        inputs.append(hidden)
        outputs = layer(hidden)
        if layer.index == 3:
            with torch.no_grad():
                inputs[2].add_(1)
        return outputs

    model.call = overwrite
    # The schedule runs each copy as late as it can.
    attachment = attach(model, "prefetch", ScheduledCopyEngine())
    with pytest.raises(RuntimeError, match="modified in place"):
        model(rows(8)).backward()
    attachment.detach()
