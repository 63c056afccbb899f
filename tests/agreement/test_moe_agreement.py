"""Every way of routing against transformers' own loop, for every layout of experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from optimizations.moe_routing import MoeRouting
from optimizations.moe_variants import (
    argsort_experts,
    device_offsets_experts,
    where_loop_experts,
)
from tests.optimizations.tiny_experts import (
    LAYOUTS,
    Case,
    cases,
    make_experts,
    outputs_and_gradients,
)
from tests.optimizations.tiny_models import (
    SPARSE,
    enable_checkpointing,
    logits_and_gradients,
    packed_row,
    tiny_model,
)

FUNCTIONS = {
    "where-loop": where_loop_experts,
    "argsort": argsort_experts,
    "device-offsets": device_offsets_experts,
}
EDGES = {
    "one token": Case(4, 8, 4, ((2,),)),
    "all tokens on one expert": Case(6, 8, 4, ((5,),) * 9),
    "one expert": Case(1, 8, 4, ((0,),) * 5),
    "more experts than tokens": Case(32, 8, 4, ((31, 0), (7, 31))),
    "first and last expert empty": Case(6, 8, 4, ((1, 2), (4, 3), (2, 4))),
    "every expert": Case(3, 8, 4, ((0, 1, 2), (2, 0, 1))),
    "sizes grouped matmul refuses": Case(4, 5, 3, ((0, 3), (3, 1), (1, 0))),
}


def library(experts: Any, *arguments: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = experts(*arguments)
    return output


def worst_difference(
    actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]
) -> tuple[float, str]:
    assert actual.keys() == expected.keys()
    worst = (0.0, "")
    for name, value in expected.items():
        assert torch.isfinite(actual[name]).all(), name
        scale = float(value.abs().max()) or 1.0
        worst = max(worst, (float((actual[name] - value).abs().max()) / scale, name))
    return worst


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=cases())
def test_every_variant_equals_the_library_loop(layout: str, case: Case) -> None:
    experts = make_experts(layout, case)
    expected = outputs_and_gradients(library, experts, case)
    found = {n: outputs_and_gradients(f, experts, case) for n, f in FUNCTIONS.items()}
    for name, result in found.items():
        assert worst_difference(result, expected) < (1e-5, ""), name
    for name, value in found["where-loop"].items():
        assert torch.equal(found["argsort"][name], value), name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("edge", list(EDGES))
def test_edges(layout: str, edge: str) -> None:
    case = EDGES[edge]
    experts = make_experts(layout, case)
    expected = outputs_and_gradients(library, experts, case)
    for name, function in FUNCTIONS.items():
        result = outputs_and_gradients(function, experts, case)
        assert worst_difference(result, expected) < (1e-5, ""), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_low_precision_stays_near(layout: str) -> None:
    case = Case(5, 16, 8, ((0, 3), (3, 1), (4, 3), (0, 1), (1, 3)))
    exact = outputs_and_gradients(library, make_experts(layout, case), case)
    experts = make_experts(layout, case, torch.bfloat16)
    for name, function in FUNCTIONS.items():
        result = outputs_and_gradients(function, experts, case, torch.bfloat16)
        assert result["output"].dtype == torch.bfloat16
        found = {key: value.float() for key, value in result.items()}
        assert worst_difference(found, exact) < (0.05, ""), name


@pytest.mark.parametrize("name", ["batched_mm", "grouped_mm"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_library_peers_agree_too(layout: str, name: str) -> None:
    case = EDGES["first and last expert empty"]
    experts = make_experts(layout, case)
    expected = outputs_and_gradients(library, experts, case)
    result = outputs_and_gradients(ALL_EXPERTS_FUNCTIONS[name], experts, case)
    assert worst_difference(result, expected) < (1e-5, "")


@pytest.mark.parametrize("checkpointing", [None, True, False])
@pytest.mark.parametrize("family", SPARSE)
def test_variants_agree_in_a_whole_model(family: str, checkpointing: bool | None) -> None:
    model = tiny_model(family)
    if checkpointing is not None:
        enable_checkpointing(model, use_reentrant=checkpointing)
    row = packed_row([9, 8])
    optimization = MoeRouting()
    attachment = optimization.attach(model)
    found = {}
    for variant in optimization.variants:
        assert optimization.requires(model, variant.name) is None
        attachment.select(variant.name)
        found[variant.name] = logits_and_gradients(model, row)
    attachment.detach()
    for name, result in found.items():
        tolerance, _ = optimization.tolerance(name, torch.float32)
        assert worst_difference(result, found["where-loop"])[0] <= tolerance, name
