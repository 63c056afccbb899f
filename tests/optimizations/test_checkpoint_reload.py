"""Checkpointing with offload computes what plain computes, holds less, and leaves no trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig, Qwen3Config

from optimizations.checkpoint_reload import CheckpointReload
from tests.optimizations.checkpoint_stack import (
    WIDTH,
    Stack,
    StackLayer,
    assert_same_bits,
    make_stack,
    rows,
    step,
    take_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Callable

VARIANTS = tuple(variant.name for variant in CheckpointReload().variants)
OFFLOADING = ("single-buffer", "double-buffer", "prefetch")
ALL = CheckpointReload(min_bytes=0)
NUM_LAYERS = 5
ROW_BYTES = WIDTH * 8

# peft asks transformers for a property that transformers 5.24 renamed.
peft_asks_for_an_old_name = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)

_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "attention_dropout": 0.2,
    "pad_token_id": 0,
    "use_cache": False,
}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES, head_dim=8),
    "gpt-oss": lambda: GptOssConfig(
        **_SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    ),
}


def causal_model(family: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[family]()).to(dtype).train()


def causal_step(model: Any, num_tokens: int = 12) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 40, (2, num_tokens), generator=torch.Generator().manual_seed(3))
    torch.manual_seed(7)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return {"loss": loss.detach(), **take_gradients(model)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("family", CONFIGS)
def test_every_variant_gives_the_bits_of_no_checkpointing(family: str, dtype: torch.dtype) -> None:
    model = causal_model(family, dtype)
    expected = causal_step(model)
    attachment = ALL.attach(model)
    for variant in (*VARIANTS, *reversed(VARIANTS)):
        attachment.select(variant)
        assert_same_bits(causal_step(model), expected)
    attachment.detach()
    assert_same_bits(causal_step(model), expected)


@pytest.mark.parametrize("variant", OFFLOADING)
def test_autocast_of_the_forward_holds_in_the_recompute(variant: str) -> None:
    model = causal_model("llama")

    def autocast_step() -> dict[str, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            ids = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(3))
            torch.manual_seed(7)
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()  # outside, so that only a restored state can match
        return {"loss": loss.detach(), **take_gradients(model)}

    expected = autocast_step()
    attachment = ALL.attach(model)
    attachment.select(variant)
    assert_same_bits(autocast_step(), expected)
    attachment.detach()


@peft_asks_for_an_old_name
@pytest.mark.parametrize("variant", OFFLOADING)
def test_lora_on_frozen_embeddings_loses_no_gradient(variant: str) -> None:
    # The first layer's input needs no gradient and its adapters do.
    model = get_peft_model(causal_model("llama"), LoraConfig(target_modules=["q_proj", "v_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    expected = causal_step(model)
    assert any("layers.0." in name for name in expected)
    attachment = ALL.attach(model)
    attachment.select(variant)
    assert_same_bits(causal_step(model), expected)
    assert attachment.host_buffer_bytes() > 0
    attachment.detach()


@pytest.mark.parametrize("keep_last", [0, 1, 3])
@pytest.mark.parametrize(("variant", "num_slots"), [*zip(OFFLOADING, (1, 2, 2), strict=True)])
def test_buffers_are_what_the_design_says(variant: str, num_slots: int, keep_last: int) -> None:
    model = make_stack(NUM_LAYERS)
    settings = CheckpointReload(min_bytes=0, keep_last=keep_last, max_deferred_waits=0)
    attachment = settings.attach(model)
    attachment.select(variant)
    for _ in range(3):
        step(model, rows(8))
        assert attachment.host_buffer_bytes() == (NUM_LAYERS - keep_last) * 8 * ROW_BYTES
        assert attachment.device_buffer_bytes() == num_slots * 8 * ROW_BYTES
    attachment.detach()
    assert attachment.device_buffer_bytes() == attachment.host_buffer_bytes() == 0


@pytest.mark.parametrize(
    ("variant", "num_resident"),
    [("plain", NUM_LAYERS), ("single-buffer", 1), ("double-buffer", 1), ("prefetch", 2)],
)
def test_offloaded_inputs_leave_the_device(variant: str, num_resident: int) -> None:
    model = make_stack(NUM_LAYERS)
    attachment = ALL.attach(model)
    attachment.select(variant)
    inputs: list[StorageWeakRef] = []
    for layer in model.layers:
        layer.probe = lambda _, hidden: inputs.append(StorageWeakRef(hidden.untyped_storage()))
    loss = model(rows(8))
    # `prefetch` has not waited for the last offload yet, which is one more.
    assert sum(not ref.expired() for ref in inputs) == num_resident
    num_inputs = len(inputs)
    loss.backward()
    del loss
    assert all(ref.expired() for ref in inputs[:num_inputs])
    attachment.detach()


def test_buffers_grow_with_the_largest_input_and_stay() -> None:
    model = make_stack(NUM_LAYERS)
    sizes = (4, 16, 7, 64, 2)
    expected = [step(model, rows(size)) for size in sizes]
    for variant in OFFLOADING:
        attachment = ALL.attach(model)
        attachment.select(variant)
        largest = 0
        for size, wanted in zip(sizes, expected, strict=True):
            assert_same_bits(step(model, rows(size)), wanted)
            largest = max(largest, size)
            held = attachment.device_buffer_bytes()
            assert largest * ROW_BYTES <= held <= 2 * largest * ROW_BYTES
            assert attachment.host_buffer_bytes() <= NUM_LAYERS * largest * ROW_BYTES
        attachment.detach()


def test_small_inputs_stay_on_the_device() -> None:
    model = make_stack()
    attachment = CheckpointReload(min_bytes=8 * ROW_BYTES).attach(model)
    attachment.select("prefetch")
    step(model, rows(7))
    assert attachment.host_buffer_bytes() == 0
    step(model, rows(8))
    assert attachment.host_buffer_bytes() > 0
    attachment.detach()


def test_by_default_a_copy_starts_to_pay_at_64_kib_on_the_cpu() -> None:
    model = make_stack()
    attachment = CheckpointReload().attach(model)
    attachment.select("prefetch")
    step(model, rows(64 * 2**10 // ROW_BYTES))
    assert attachment.host_buffer_bytes() == 0
    step(model, rows(64 * 2**10 // ROW_BYTES + 1))
    assert attachment.host_buffer_bytes() > 0
    attachment.detach()


def test_device_buffers_survive_toggling_and_end_with_detach() -> None:
    model = make_stack()
    attachment = ALL.attach(model)
    for variant in OFFLOADING:
        attachment.select(variant)
        step(model, rows(8))
    held = attachment.device_buffer_bytes()
    for variant in OFFLOADING:
        attachment.select(variant)
        assert attachment.device_buffer_bytes() == held
        step(model, rows(8))
        assert attachment.device_buffer_bytes() == held > 0
    attachment.detach()
    assert attachment.device_buffer_bytes() == 0


CALLS: dict[str, Callable[[Stack], Callable[[StackLayer, torch.Tensor], Any]]] = {
    "several positional": lambda model: lambda layer, hidden: layer(hidden, model.scale),
    "keyword that needs a gradient": lambda model: (
        lambda layer, hidden: layer(hidden, scale=model.scale * 2)
    ),
    "same tensor twice": lambda model: lambda layer, hidden: layer(hidden, hidden),
    "input by keyword": lambda model: lambda layer, hidden: layer(hidden=hidden),
    "input not a tensor": lambda model: lambda layer, hidden: layer((hidden,)),
    "input not contiguous": lambda model: lambda layer, hidden: layer(hidden.t().contiguous().t()),
    "nested checkpoint": lambda model: (
        lambda layer, hidden: layer(
            hidden, scale=checkpoint(torch.tanh, model.scale, use_reentrant=False)
        )
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_layers_may_be_called_in_any_way(call: Any) -> None:
    model = make_stack()
    model.call = call(model)
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    for variant in VARIANTS:
        attachment.select(variant)
        assert_same_bits(step(model, rows(8)), expected)
    attachment.detach()


def test_a_checkpoint_inside_a_checkpointed_layer_moves_nothing_more() -> None:
    class Outer(StackLayer):
        def __init__(self) -> None:
            super().__init__(0)
            self.inner = StackLayer(1)

        def forward(self, hidden: torch.Tensor) -> Any:  # type: ignore[override]
            return super().forward(self.inner(hidden)[0])

    model = make_stack(4)
    model.layers[1] = Outer().double()
    expected = step(model, rows(8))
    attachment = ALL.attach(model)
    for variant in OFFLOADING:
        attachment.select(variant)
        assert_same_bits(step(model, rows(8)), expected)
    assert attachment.host_buffer_bytes() == 3 * 8 * ROW_BYTES
    attachment.detach()
