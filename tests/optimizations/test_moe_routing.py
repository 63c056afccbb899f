"""What `moe-routing` promises besides the right numbers: reads, exact removal, clear errors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from harness.errors import UsageError
from optimizations.moe_routing import MoeRouting
from optimizations.moe_variants import (
    argsort_experts,
    device_offsets_experts,
    where_loop_experts,
)
from optimizations.packed_metadata import PackedMetadata
from tests.optimizations.tiny_experts import LAYOUTS, Case, make_experts
from tests.optimizations.tiny_models import (
    SPARSE,
    OpCounter,
    logits_and_gradients,
    packed_row,
    tiny_model,
)

if TYPE_CHECKING:
    from harness.workload import Optimization

WELL_SIZED = Case(6, 16, 8, ((0, 1), (5, 1), (0, 5)))
# Operations whose output size depends on data, so that the host waits for them on a device.
WAITING = ("aten::nonzero", "aten::bincount", "aten::_local_scalar_dense", "aten::unique2")


def waits(function: Any, case: Case) -> dict[str, int]:
    experts = make_experts("qwen3-moe", case)
    states = torch.randn(case.num_tokens, case.hidden, requires_grad=True)
    weights = torch.rand(case.num_tokens, case.top_k)
    with OpCounter() as counter:
        function(experts, states, torch.tensor(case.choices), weights).sum().backward()
    return {name: counter.counts[name] for name in WAITING if name in counter.counts}


def test_reads_are_one_per_expert_then_one_then_none() -> None:
    assert waits(where_loop_experts, WELL_SIZED) == {"aten::nonzero": WELL_SIZED.num_experts}
    assert waits(argsort_experts, WELL_SIZED) == {"aten::bincount": 1}
    assert waits(device_offsets_experts, WELL_SIZED) == {}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", [where_loop_experts, argsort_experts, device_offsets_experts])
def test_no_expert_writes_a_gradient_of_the_size_of_all(function: Any, layout: str) -> None:
    # Sizes that no grouped matmul takes, so that every variant goes expert by expert.
    case = Case(6, 5, 3, WELL_SIZED.choices)
    experts = make_experts(layout, case)
    states, weights = torch.randn(case.num_tokens, case.hidden), torch.rand(3, case.top_k)
    with OpCounter() as counter:
        function(experts, states, torch.tensor(case.choices), weights).sum().backward()
    stacks = len(list(experts.parameters()))
    assert counter.counts.get("aten::stack", 0) == stacks
    assert "aten::select_backward" not in counter.counts
    assert all(parameter.grad is not None for parameter in experts.parameters())


@pytest.mark.parametrize("family", SPARSE)
def test_detach_leaves_the_model_and_the_library_as_before(family: str) -> None:
    model = tiny_model(family)
    row = packed_row([6, 5])
    config_before = copy.deepcopy(vars(model.config))
    names_before = list(ALL_EXPERTS_FUNCTIONS)
    outputs_before = logits_and_gradients(model, row)
    optimization = MoeRouting()
    attachment = optimization.attach(model)
    for variant in optimization.variants:
        attachment.select(variant.name)
        logits_and_gradients(model, row)
    attachment.detach()
    attachment.detach()
    assert vars(model.config) == config_before
    assert list(ALL_EXPERTS_FUNCTIONS) == names_before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    for name, value in logits_and_gradients(model, row).items():
        assert torch.equal(value, outputs_before[name])


def test_it_stacks_with_packed_metadata_and_comes_off_in_any_order() -> None:
    model = tiny_model("gpt-oss")
    before = (model.config._attn_implementation, model.config._experts_implementation)
    row = packed_row([6, 5])
    attention, experts = PackedMetadata().attach(model), MoeRouting().attach(model)
    attention.select("per-layer")
    experts.select("where-loop")
    expected = model(**row).logits
    attention.select("collator")
    experts.select("device-offsets")
    torch.testing.assert_close(model(**row).logits, expected, rtol=1e-4, atol=1e-4)
    attention.detach()
    experts.detach()
    assert (model.config._attn_implementation, model.config._experts_implementation) == before


def test_attaching_twice_is_an_error() -> None:
    model = tiny_model("qwen3-moe")
    first = MoeRouting().attach(model)
    with pytest.raises(UsageError, match="detach"):
        MoeRouting().attach(model)
    first.detach()
    MoeRouting().attach(model).detach()


# peft asks transformers a question under a name that transformers 5.24 renamed.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_peft_wrapper_is_seen_through() -> None:
    model = tiny_model("qwen3-moe")
    before = model.config._experts_implementation
    wrapped = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    row = packed_row([6, 5])
    attachment = MoeRouting().attach(wrapped)
    attachment.select("where-loop")
    expected = logits_and_gradients(wrapped, row)
    attachment.select("argsort")
    found = logits_and_gradients(wrapped, row)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    attachment.detach()
    assert model.config._experts_implementation == before


def test_unknown_variant_names_the_choices() -> None:
    attachment = MoeRouting().attach(tiny_model("mixtral"))
    with pytest.raises(UsageError, match="where-loop, argsort, device-offsets, eager"):
        attachment.select("nothing")
    attachment.detach()


def test_reasons_name_what_is_in_the_way() -> None:
    optimization: Optimization = MoeRouting()
    assert "no experts" in str(optimization.requires(tiny_model("llama"), "argsort"))
    assert "no transformers model" in str(optimization.requires(nn.Linear(2, 2), "argsort"))
    with pytest.raises(UsageError, match="no experts"):
        optimization.attach(tiny_model("llama"))
    odd = tiny_model("qwen3-moe")
    for layer in odd.model.layers:
        layer.mlp.experts = make_experts("qwen3-moe", Case(6, 32, 3, ((0, 1),)))
    assert "16 bytes" in str(optimization.requires(odd, "grouped_mm"))
    assert optimization.requires(odd, "device-offsets") is None


def test_frozen_experts_pass_gradients_through() -> None:
    model = tiny_model("gpt-oss")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("experts" not in name)
    row = packed_row([6, 5])
    attachment = MoeRouting().attach(model)
    attachment.select("where-loop")
    expected = logits_and_gradients(model, row)
    attachment.select("device-offsets")
    found = logits_and_gradients(model, row)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4)
    attachment.detach()


def test_roles_and_tolerances_follow_the_contract() -> None:
    optimization: Optimization = MoeRouting()
    roles = [variant.role for variant in optimization.variants]
    assert roles.count("baseline") == roles.count("published") == 1
    for variant in optimization.variants:
        tolerance, reason = optimization.tolerance(variant.name, torch.bfloat16)
        assert 0.0 <= tolerance <= 1.0
        assert reason
