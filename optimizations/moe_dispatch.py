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
    """`[S, hidden]`, grouped by expert -> `[T, hidden]`: the sum by router weight `[T, top_k]`.

    Products are rounded before they are added, as the loops do it: a sum that rounds once is more
    exact, but then the next layer's router decides otherwise now and then.
    """
    num_tokens, top_k = weights.shape
    pairs = _apply(_ToPairs, rows, dispatch.order, dispatch.inverse)
    pairs = pairs.view(num_tokens, top_k, rows.shape[-1])
    return (pairs * weights.unsqueeze(-1)).sum(dim=1)


def per_row(stacked: torch.Tensor, expert_of_row: torch.Tensor) -> torch.Tensor:
    """`[E, n]` -> `[S, n]`: each row's own expert's values, such as its bias."""
    return _apply(_PerRow, stacked, expert_of_row)


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


class _PerRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stacked: torch.Tensor, expert_of_row: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(expert_of_row)
        ctx.shape, ctx.dtype = stacked.shape, stacked.dtype
        return stacked.index_select(0, expert_of_row)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (expert_of_row,) = ctx.saved_tensors
        # An expert adds up hundreds of rows: in bfloat16 that loses a tenth of the sum.
        exact = torch.promote_types(ctx.dtype, torch.float32)
        total = torch.zeros(ctx.shape, dtype=exact, device=grads[0].device)
        total.index_add_(0, expert_of_row, grads[0].to(exact))
        return total.to(ctx.dtype), None
