"""Standalone experts modules of transformers in each layout, and routings for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from transformers import GptOssConfig, MixtralConfig, Qwen3MoeConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

LAYOUTS = ("gpt-oss", "mixtral", "qwen3-moe")


@dataclass(frozen=True)
class Case:
    """Shapes and choices of one call of an experts module."""

    num_experts: int
    hidden: int
    inner: int
    choices: tuple[tuple[int, ...], ...]
    """For each token, the experts it goes to; they differ from each other."""

    @property
    def num_tokens(self) -> int:
        return len(self.choices)

    @property
    def top_k(self) -> int:
        return len(self.choices[0])


def make_experts(layout: str, case: Case, dtype: torch.dtype = torch.float32) -> Any:
    """Experts with weights that reach gpt-oss's clamp, dispatching to the library's own loop."""
    sizes = {"hidden_size": case.hidden, "num_experts_per_tok": case.top_k}
    if layout == "gpt-oss":
        config: Any = GptOssConfig(
            **sizes, intermediate_size=case.inner, num_local_experts=case.num_experts
        )
        experts: Any = GptOssExperts(config)
    elif layout == "mixtral":
        config = MixtralConfig(
            **sizes, intermediate_size=case.inner, num_local_experts=case.num_experts
        )
        experts = MixtralExperts(config)
    else:
        config = Qwen3MoeConfig(
            **sizes, moe_intermediate_size=case.inner, num_experts=case.num_experts
        )
        experts = Qwen3MoeExperts(config)
    config._experts_implementation = "eager"
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return experts.to(dtype)


def outputs_and_gradients(
    function: Any, experts: Any, case: Case, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """The output of one call, and the gradients of states, router weights and parameters."""
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(case.num_tokens, case.hidden, generator=generator).to(dtype)
    weights = torch.rand(case.num_tokens, case.top_k, generator=generator).to(dtype)
    pull = torch.randn(case.num_tokens, case.hidden, generator=generator).to(dtype)
    states.requires_grad_()
    weights.requires_grad_()
    experts.zero_grad()
    output = function(experts, states, torch.tensor(case.choices), weights)
    output.backward(pull)
    found = {"output": output.detach(), "states": states.grad, "weights": weights.grad}
    for name, parameter in experts.named_parameters():
        found[name] = None if parameter.grad is None else parameter.grad.clone()
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any number of experts, tokens and choices; sizes that fit grouped matmul and that do not."""
    num_experts = draw(st.integers(1, 10))
    top_k = draw(st.integers(1, min(3, num_experts)))
    hidden, inner = draw(st.sampled_from([(8, 4), (16, 8), (5, 3)]))
    hit = draw(st.integers(top_k, num_experts))
    one_token = st.permutations(range(hit)).map(lambda order: tuple(order[:top_k]))
    choices = draw(st.lists(one_token, min_size=1, max_size=20))
    return Case(num_experts, hidden, inner, tuple(choices))
