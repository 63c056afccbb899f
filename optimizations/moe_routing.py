"""MoE routing: tokens grouped by expert once instead of one device read per expert.

Source: "How to Make LLM Training Faster with Unsloth and NVIDIA" (Unsloth, May 2026), third fix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.record.finding import Answer
from harness.workload import Choice, Optimization, Variant
from optimizations.variants import variant_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from optimizations.moe_variants import MoeRoutingAttachment

_SYNC_FREE_EXPERTS = {
    "batched_mm": "gathers each token's weights and reads nothing",
    "deepgemm": "groups on the device and reads nothing",
    "sonicmoe": "groups on the device and reads nothing",
}
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
class MoeRouting(Optimization):
    """Groups tokens by expert with fewer reads of the device, or none."""

    name = "moe-routing"
    summary = "Removes the device read per expert with which MoE layers find their tokens."
    trade_off = (
        "Copies each token's row once per chosen expert at the same time instead of expert by "
        "expert; saves little with few experts that each take long to compute."
    )
    variants = _VARIANTS
    removes_syncs = True
    saved_work = "expert launches"
    answers = (
        Answer(
            optimization="moe-routing=device-offsets",
            file="transformers/models/",
            function=r"Experts\.forward$",
        ),
    )

    def requires(self, model: nn.Module, variant: str) -> str | None:
        from optimizations.implementation_switch import pretrained_model
        from optimizations.moe_experts import expert_modules, grouped_obstacle

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
        from optimizations.moe_variants import MoeRoutingAttachment

        reason = self.requires(model, "where-loop")
        if reason is not None:
            raise UsageError(f"moe-routing cannot run here: {reason}.")
        return MoeRoutingAttachment(self, model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        import torch

        from optimizations.tolerances import other_order_tolerance, same_order_tolerance

        variant_of(self, variant)
        if variant in ("where-loop", "argsort"):
            return same_order_tolerance(dtype)
        tolerance, reason = other_order_tolerance(dtype)
        if torch.finfo(dtype).bits > 16:
            return tolerance, reason
        # A router's choice is a step: no bound on a gradient follows from a bound on rounding.
        return 1.0, f"{reason}, where one rounding can send a token to another expert"

    def choose(self, model: nn.Module, *, packed: bool, tokens: int | None) -> Choice:
        from optimizations.implementation_switch import implementation_of, pretrained_model
        from optimizations.moe_experts import (
            down_projection,
            expert_modules,
            grouped_drawback,
        )

        reason = self.requires(model, "device-offsets")
        if reason is not None:
            return Choice(self.name, None, reason)
        target: Any = pretrained_model(model)
        experts = next(expert_modules(target))
        weight = down_projection(experts).weight
        if weight.dim() != 3 or not weight.dtype.is_floating_point:
            why = "the expert weights are quantised; their own code must run them"
            return Choice(self.name, None, why)
        in_use = implementation_of(model, "experts")
        if in_use in _SYNC_FREE_EXPERTS:
            return Choice(self.name, None, f"{in_use} {_SYNC_FREE_EXPERTS[in_use]}")
        if in_use == "grouped_mm":
            why = "grouped_mm groups on the device, with no read per expert"
            return Choice(self.name, None, why)
        if in_use != "eager":
            return Choice(self.name, None, f"{in_use} is not known here; it is left alone")
        drawback = grouped_drawback(experts)
        how = "and grouped matmuls" if drawback is None else f"and one read per layer ({drawback})"
        why = f"eager experts read once and more per expert: one sort {how}"
        return Choice(self.name, "device-offsets", why)
