"""Moves token rows to their experts and back: linear maps whose gradients are gathers too.

PyTorch's own gradient of a gather is a scatter-add, with atomics or a second sort. Here both
directions are permutations known in advance, so each gradient is the opposite gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Dispatch:
    """`S = T * top_k` token-expert pairs, grouped by expert. Nothing here was read by the host."""

    order: torch.Tensor
    """`int64[S]`: the pair (token-major) at each place of the grouped order."""
    inverse: torch.Tensor
    """`int64[S]`: the place of each pair."""
    expert_of_row: torch.Tensor
    """`int64[S]`: ascending expert numbers."""
    ends: torch.Tensor
    """`int32[E]`: where each expert's rows end."""


def plan_dispatch(top_k_index: torch.Tensor, num_experts: int) -> Dispatch:
    """Group `int[T, top_k]` choices by expert, tokens in order within each; no device read."""
    expert_of_row, order = torch.sort(top_k_index.reshape(-1), stable=True)
    device = top_k_index.device
    inverse = torch.empty_like(order)
    inverse.scatter_(0, order, torch.arange(order.numel(), device=device))
    # A binary search in what is sorted anyway: one kernel, where counting takes three.
    experts = torch.arange(num_experts, device=device, dtype=expert_of_row.dtype)
    ends = torch.searchsorted(expert_of_row, experts, right=True, out_int32=True)
    return Dispatch(order, inverse, expert_of_row, ends)


def to_experts(hidden_states: torch.Tensor, dispatch: Dispatch, top_k: int) -> torch.Tensor:
    """`[T, hidden]` -> `[S, hidden]`, grouped by expert."""
    return _apply(_ToExperts, hidden_states, dispatch.order, dispatch.inverse, top_k)


def to_tokens(rows: torch.Tensor, dispatch: Dispatch, weights: torch.Tensor) -> torch.Tensor:
    """`[S, hidden]`, grouped by expert -> `[T, hidden]`: the sum by router weight `[T, top_k]`."""
    num_tokens, top_k = weights.shape
    pairs = _apply(_ToPairs, rows, dispatch.order, dispatch.inverse)
    pairs = pairs.view(num_tokens, top_k, rows.shape[-1])
    return torch.bmm(weights.to(rows.dtype).unsqueeze(1), pairs).squeeze(1)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> torch.Tensor:
    output: torch.Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return output


class _ToExperts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor, top_k: int
    ) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        ctx.top_k = top_k
        return hidden.index_select(0, order // top_k)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        pairs = grads[0].index_select(0, inverse)
        return pairs.view(-1, ctx.top_k, pairs.shape[-1]).sum(1), None, None, None


class _ToPairs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(order)
        return rows.index_select(0, inverse)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return grads[0].index_select(0, order), None, None
