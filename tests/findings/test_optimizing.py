"""Automatic choice: right on every model and implementation, exact where it stays off."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

import gapless
from harness.errors import UsageError
from harness.workload import PackedDocuments
from tests.optimizations.tiny_models import DENSE, SPARSE, VOCABULARY, tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = torch.arange(24).reshape(1, 24) % VOCABULARY


def loss_and_gradients(model: Any, **more: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    loss = model(input_ids=IDS, labels=IDS, **more).loss
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


def with_lora(model: Any) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))


def chosen(optimized: gapless.Optimized) -> dict[str, str | None]:
    return {choice.optimization: choice.variant for choice in optimized.choices}


# peft still asks transformers by the old name.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "lora"])
@pytest.mark.parametrize("experts", [None, "eager", "batched_mm", "grouped_mm"])
@pytest.mark.parametrize("family", SPARSE)
def test_experts_are_grouped_where_they_are_polled_and_left_alone_elsewhere(
    family: str, experts: str | None, wrapped: bool
) -> None:
    model = tiny_model(family)
    if experts is not None:
        model.set_experts_implementation(experts)
    trained = with_lora(model) if wrapped else model
    before, gradients = loss_and_gradients(trained)
    gradients = [gradient.clone() for gradient in gradients]
    implementation = model.config._experts_implementation

    with gapless.optimize(trained) as optimized:
        after, others = loss_and_gradients(trained)

    assert chosen(optimized) == {
        "packed-metadata": None,
        "checkpoint-reload": None,
        "moe-routing": "device-offsets" if experts == "eager" else None,
    }
    torch.testing.assert_close(after, before)
    for mine, theirs in zip(others, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert model.config._experts_implementation == implementation


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", DENSE)
def test_a_dense_model_is_left_exactly_as_it_is(family: str, attention: str) -> None:
    model = tiny_model(family, attention)
    before, _ = loss_and_gradients(model)

    with gapless.optimize(model) as optimized:
        after, _ = loss_and_gradients(model)

    assert set(chosen(optimized).values()) == {None}
    assert torch.equal(before, after)
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("family", [*DENSE, *SPARSE])
def test_packed_batches_use_what_the_collator_knows(family: str) -> None:
    model = tiny_model(family)
    lengths = (5, 7, 12)
    documents = PackedDocuments(lengths, torch.tensor(lengths, dtype=torch.int32))
    positions = torch.cat([torch.arange(length) for length in lengths])[None]

    with gapless.optimize(model, packed=True) as optimized:
        packed, _ = loss_and_gradients(model, position_ids=positions, packed_documents=documents)

    assert chosen(optimized)["packed-metadata"] == "collator"
    with gapless.optimize(model, {"packed-metadata": "per-layer"}):
        baseline, _ = loss_and_gradients(model, position_ids=positions, packed_documents=documents)
    torch.testing.assert_close(packed, baseline)


def test_flash_attention_takes_host_metadata_itself() -> None:
    model = tiny_model("qwen3")
    model.config._attn_implementation = "flash_attention_2"

    choice = gapless.optimize(model, packed=True).choices[0]

    assert choice.variant is None
    assert "cu_seq_lens" in choice.reason


# transformers asks for the mask by an option that torch is about to drop.
compiled_mask = pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask")


@pytest.fixture
def checked_distributions() -> Iterator[None]:
    """The first use of a compiler switches off the checks of torch's distributions for good."""
    yield
    torch.distributions.Distribution.set_default_validate_args(__debug__)


class FlexStep:
    """One step of a tiny model with `flex_attention`, which runs backward on a GPU only."""

    lengths = (5, 7, 12)

    def __init__(self, family: str) -> None:
        self.model = tiny_model(family, "flex_attention").to("cuda")
        positions = torch.cat([torch.arange(length) for length in self.lengths])[None]
        self.inputs = {
            "input_ids": IDS.to("cuda"),
            "labels": IDS.to("cuda"),
            "position_ids": positions.to("cuda"),
        }

    def documents(self) -> PackedDocuments:
        on_device = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")
        return PackedDocuments(self.lengths, on_device)

    def run(self, **more: Any) -> list[torch.Tensor]:
        """Loss and gradients, as the values on the host."""
        self.model.zero_grad()
        loss = self.model(**self.inputs, **more).loss
        loss.backward()
        found = [loss.detach(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        return [tensor.cpu() for tensor in found]


@compiled_mask
@pytest.mark.usefixtures("checked_distributions")
@pytest.mark.parametrize("family", ["llama", "qwen3-windows", "mixtral"])
def test_flex_attention_stays_and_the_experts_are_switched_beside_it(family: str) -> None:
    from harness.emulator.device import EmulatedDevice

    with EmulatedDevice("H100"):
        step = FlexStep(family)
        if family in SPARSE:
            step.model.set_experts_implementation("eager")
        before = step.run()
        with gapless.optimize(step.model, packed=True) as optimized:
            after = step.run()
            in_use = step.model.config._attn_implementation

    assert in_use == "flex_attention"
    assert chosen(optimized)["packed-metadata"] is None
    assert "flex_attention stays" in optimized.choices[0].reason
    assert chosen(optimized)["moe-routing"] == ("device-offsets" if family in SPARSE else None)
    for mine, theirs in zip(after, before, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@compiled_mask
@pytest.mark.usefixtures("checked_distributions")
def test_flex_attention_gives_way_where_packed_metadata_is_asked_for_and_comes_back() -> None:
    from harness.emulator.device import EmulatedDevice

    with EmulatedDevice("H100"):
        step = FlexStep("qwen3")
        before = step.run()
        with gapless.optimize(step.model, {"packed-metadata": "collator"}) as optimized:
            after = step.run(packed_documents=step.documents())
        restored = step.model.config._attn_implementation
        again = step.run()

    assert "takes the place of flex_attention until" in str(optimized)
    assert restored == "flex_attention"
    for mine, theirs in zip(after, before, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert all(map(torch.equal, again, before))


@compiled_mask
@pytest.mark.usefixtures("checked_distributions")
def test_flex_attention_and_reloads_go_together_on_shapes_alone() -> None:
    from harness.emulator.device import EmulatedDevice

    with EmulatedDevice("H100", shapes_only=True):
        step = FlexStep("llama")
        step.model.activation_checkpointing_enable({"use_reentrant": False}, offload=True)
        with gapless.optimize(step.model, packed=True) as optimized:
            step.run()

    assert chosen(optimized) == {
        "packed-metadata": None,
        "checkpoint-reload": "prefetch",
        "moe-routing": None,
    }


def test_checkpoint_inputs_move_only_on_a_gpu_that_is_short_of_memory() -> None:
    from harness.emulator.device import EmulatedDevice

    with EmulatedDevice("A100"):
        model = tiny_model("qwen3").to("cuda")
        without = gapless.optimize(model, tokens=1 << 16)
        model.activation_checkpointing_enable({"use_reentrant": False})
        plain = gapless.optimize(model)
        small = gapless.optimize(model, tokens=128)
        fits = gapless.optimize(model, tokens=1 << 16)
        with gapless.optimize(model, tokens=1 << 27) as presses:
            pass
        model.activation_checkpointing_enable({"use_reentrant": False}, offload=True)
        with gapless.optimize(model) as already:
            pass
    reasons = [
        next(c for c in o.choices if c.optimization == "checkpoint-reload")
        for o in (without, plain, small, fits, presses, already)
    ]
    assert [choice.variant for choice in reasons] == [
        None, None, None, None, "prefetch", "prefetch",
    ]  # fmt: skip
    for choice, words in zip(
        reasons,
        ("does not checkpoint", "never time", "too small", "fit in", "press on", "already"),
        strict=True,
    ):
        assert words in choice.reason


def test_one_line_each_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gapless"):
        optimized = gapless.optimize(tiny_model("llama"))

    assert [record.getMessage() for record in caplog.records] == str(optimized).splitlines()
    assert len(caplog.records) == 3


def test_errors_leave_the_model_as_it_was() -> None:
    model = tiny_model("mixtral")
    before = model.config._experts_implementation

    with pytest.raises(UsageError, match="gapless list"):
        gapless.optimize(model, "fastest")
    with pytest.raises(UsageError, match="no optimization 'nonsense'"):
        gapless.optimize(model, {"moe-routing": "argsort", "nonsense": "x"})
    with pytest.raises(UsageError, match="no variant 'nonsense'"):
        gapless.optimize(model, {"moe-routing": "nonsense"})
    with gapless.optimize(model, {"moe-routing": "argsort"}) as first, pytest.raises(UsageError):
        gapless.optimize(model, {"moe-routing": "argsort"})
    first.detach()
    assert model.config._experts_implementation == before


@pytest.mark.parametrize(
    ("model", "choice", "said"),
    [
        (None, "auto", "a torch.nn.Module, not NoneType"),
        (len, "auto", "a torch.nn.Module, not builtin_function_or_method"),
        (torch.nn.Linear(1, 1), None, "not None"),
        (torch.nn.Linear(1, 1), [("moe-routing", "argsort")], "moe-routing"),
    ],
)
def test_what_is_no_model_or_no_choice_is_one_sentence(model: Any, choice: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gapless.optimize(model, choice)


# The compiler makes instances of autograd functions, and looks for gradients of what has none.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.usefixtures("checked_distributions")
def test_a_compiled_model_goes_on_and_computes_the_same() -> None:
    model = tiny_model("qwen3-moe", "eager")
    model.set_experts_implementation("eager")
    before, gradients = loss_and_gradients(model)
    gradients = [gradient.clone() for gradient in gradients]
    compiled = torch.compile(model, backend="eager")
    with gapless.optimize(compiled) as optimized:
        after, others = loss_and_gradients(compiled)
    assert chosen(optimized)["moe-routing"] == "device-offsets"
    torch.testing.assert_close(after, before)
    for mine, theirs in zip(others, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_model_of_nobody_is_left_alone() -> None:
    optimized = gapless.optimize(torch.nn.Linear(2, 2))

    assert set(chosen(optimized).values()) == {None}
    assert all("transformers" in choice.reason for choice in optimized.choices)
