"""MoE routing: tokens grouped by expert once instead of one device read per expert.

Source: "How to Make LLM Training Faster with Unsloth and NVIDIA" (Unsloth, May 2026), third fix.
The functions below have the signature under which transformers calls experts:
`(experts module, hidden_states [T, hidden], top_k_index [T, top_k], top_k_weights [T, top_k])`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.errors import UsageError
from harness.workload import Variant
from optimizations.implementation_switch import ImplementationSwitch, pretrained_model
from optimizations.moe_dispatch import plan_dispatch, to_experts, to_tokens
from optimizations.moe_experts import (
    all_experts_grouped,
    each_expert,
    expert_modules,
    grouped_obstacle,
)
from optimizations.tolerances import other_order_tolerance, same_order_tolerance
from optimizations.variants import variant_of

if TYPE_CHECKING:
    from torch import nn

_VARIANTS = (
    Variant(
        "where-loop",
        "baseline",
        "For each expert, finds its tokens with torch.where, which reads the device.",
    ),
    Variant(
        "argsort",
        "published",
        "Sorts the tokens by expert and reads all counts at once, then slices per expert.",
    ),
    Variant(
        "device-offsets",
        "beyond",
        "Sorts, keeps the offsets on the device, and runs all experts in grouped matmuls.",
    ),
    Variant("eager", "peer", "transformers' own loop over the experts that were hit."),
    Variant("batched_mm", "peer", "transformers' own batched matmul on gathered weights."),
    Variant("grouped_mm", "peer", "transformers' own grouped matmul."),
)


@dataclass(frozen=True)
class MoeRouting:
    """Groups tokens by expert with fewer reads of the device, or none."""

    name = "moe-routing"
    summary = "Removes the device read per expert with which MoE layers find their tokens."
    trade_off = (
        "Copies each token's row once per chosen expert at the same time instead of expert by "
        "expert; saves little with few experts that each take long to compute."
    )
    variants = _VARIANTS

    def requires(self, model: nn.Module, variant: str) -> str | None:
        variant_of(self, variant)
        target = pretrained_model(model)
        if target is None:
            return f"{type(model).__name__} holds no transformers model"
        experts = next(expert_modules(target), None)
        if experts is None:
            return f"{type(target).__name__} has no experts that transformers dispatches"
        if getattr(experts, "_is_expert_parallel", False):
            return "the experts are spread over several devices"
        return grouped_obstacle(experts) if variant == "grouped_mm" else None

    def attach(self, model: nn.Module) -> MoeRoutingAttachment:
        reason = self.requires(model, "where-loop")
        if reason is not None:
            raise UsageError(f"moe-routing cannot run here: {reason}.")
        return MoeRoutingAttachment(self, model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        variant_of(self, variant)
        if variant in ("where-loop", "argsort"):
            return same_order_tolerance(dtype)
        tolerance, reason = other_order_tolerance(dtype)
        if torch.finfo(dtype).bits > 16:
            return tolerance, reason
        # A router's choice is a step: no bound on a gradient follows from a bound on rounding.
        return 1.0, f"{reason}, where one rounding can send a token to another expert"


class MoeRoutingAttachment:
    """One model's variants; holds nothing between steps."""

    def __init__(self, optimization: MoeRouting, model: nn.Module) -> None:
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
            raise UsageError(f"moe-routing={variant} cannot run here: {reason}.")
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

    Where torch has no grouped matmul for these experts, they run one by one, after one read.
    """
    dispatch = plan_dispatch(top_k_index, _num_experts(experts))
    rows = to_experts(hidden_states, dispatch, top_k_index.shape[-1])
    if grouped_obstacle(experts) is None:
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
