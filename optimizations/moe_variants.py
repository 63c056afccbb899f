"""The variants of MoE routing, as functions that transformers calls for the experts of a layer.

They have the signature under which it calls experts:
`(experts module, hidden_states [T, hidden], top_k_index [T, top_k], top_k_weights [T, top_k])`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.errors import UsageError
from optimizations.implementation_switch import ImplementationSwitch
from optimizations.moe_dispatch import plan_dispatch, to_experts, to_tokens
from optimizations.moe_experts import all_experts_grouped, each_expert, grouped_drawback

if TYPE_CHECKING:
    from torch import nn

    from harness.workload import Optimization


class MoeRoutingAttachment:
    """One model's variants; holds nothing between steps."""

    def __init__(self, optimization: Optimization, model: nn.Module) -> None:
        self._optimization = optimization
        self._model = model
        self._switch = ImplementationSwitch(
            model,
            "experts",
            {
                "where-loop": where_loop_experts,
                "argsort": argsort_experts,
                "device-offsets": device_offsets_experts,
            },
        )

    def select(self, variant: str) -> None:
        """Use `variant`. Raises `UsageError` for an unknown one or one that cannot run here."""
        reason = self._optimization.requires(self._model, variant)
        if reason is not None:
            raise UsageError(f"{self._optimization.name}={variant} cannot run here: {reason}.")
        self._switch.use(variant)

    def detach(self) -> None:
        """Put the model's own experts implementation back."""
        self._switch.restore()


def where_loop_experts(
    experts: nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Every expert, also an empty one, asks for its tokens: one read per expert."""
    output = torch.zeros_like(hidden_states, dtype=torch.float32)
    for expert, compute in enumerate(each_expert(experts)):
        token, choice = torch.where(top_k_index == expert)
        rows = compute(hidden_states[token])
        weighted = rows * top_k_weights[token, choice, None]
        output.index_add_(0, token, weighted.to(output.dtype))
    return output.to(hidden_states.dtype)


def argsort_experts(
    experts: nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """One sort, one count read by the host; empty experts are skipped."""
    num_tokens, top_k = top_k_index.shape
    choices = top_k_index.reshape(-1)
    token_of_pair = torch.arange(num_tokens, device=choices.device).repeat_interleave(top_k)
    order = torch.argsort(choices, stable=True)
    counts = torch.bincount(choices, minlength=_num_experts(experts)).tolist()
    sorted_tokens = token_of_pair[order]
    sorted_weights = top_k_weights.reshape(-1)[order]
    output = torch.zeros_like(hidden_states, dtype=torch.float32)
    start = 0
    for compute, count in zip(each_expert(experts), counts, strict=True):
        if count == 0:
            continue
        here = slice(start, start + count)
        rows = compute(hidden_states[sorted_tokens[here]])
        weighted = rows * sorted_weights[here, None]
        output.index_add_(0, sorted_tokens[here], weighted.to(output.dtype))
        start += count
    return output.to(hidden_states.dtype)


def device_offsets_experts(
    experts: nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """One sort, offsets that stay on the device, grouped matmuls, and a sum without a scatter.

    Where torch has no grouped matmul for these experts, or one that reads the offsets in every
    product, they run one by one, after one read.
    """
    dispatch = plan_dispatch(top_k_index, _num_experts(experts))
    rows = to_experts(hidden_states, dispatch, top_k_index.shape[-1])
    if grouped_drawback(experts) is None:
        rows = all_experts_grouped(experts, rows, dispatch.expert_of_row, dispatch.ends)
    else:
        rows = _one_by_one(experts, rows, dispatch.ends.tolist())
    return to_tokens(rows, dispatch, top_k_weights).to(hidden_states.dtype)


def _one_by_one(experts: nn.Module, rows: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Rows sorted by expert through their experts, a slice at a time."""
    starts = [0, *ends[:-1]]
    outputs = [
        compute(rows[start:end])
        for compute, start, end in zip(each_expert(experts), starts, ends, strict=True)
        if end > start
    ]
    return torch.cat(outputs)


def _num_experts(experts: nn.Module) -> int:
    num_experts = experts.num_experts
    assert isinstance(num_experts, int), "transformers keeps the number of experts as an integer"
    return num_experts
