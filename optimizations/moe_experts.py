"""The arithmetic of one expert, or of all grouped, in the layouts transformers stores them.

transformers marks every experts module with its layout: `has_gate`, `has_bias`, `is_transposed`,
and the module brings its own `_apply_gate` (gpt-oss: interleaved, clamped; others: halves, SiLU).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from optimizations.moe_dispatch import per_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn


@dataclass(frozen=True)
class ExpertWeights:
    """Stacked weights of one projection of all experts."""

    weight: torch.Tensor
    """`[E, in, out]` where `is_transposed`, else `[E, out, in]`."""
    bias: torch.Tensor | None
    """`[E, out]`."""
    is_transposed: bool

    def each(self) -> list[Callable[[torch.Tensor], torch.Tensor]]:
        """For each expert the map `[n, in]` -> `[n, out]`.

        The stacks are taken apart once, so that backward puts their gradients together once. Taken
        by index, every expert's gradient would be a whole stack of zeros with one expert in it.
        """
        biases = [None] * len(self.weight) if self.bias is None else self.bias.unbind()
        return [
            partial(_linear, weight, bias, is_transposed=self.is_transposed)
            for weight, bias in zip(self.weight.unbind(), biases, strict=True)
        ]

    def apply_grouped(
        self, rows: torch.Tensor, expert_of_row: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        """`[S, in]`, sorted by expert, through each row's expert; `ends` is `int32[E]`."""
        weight = self.weight if self.is_transposed else self.weight.transpose(-2, -1)
        # Under autocast, rows can arrive in another dtype than the weights.
        # A compiler knows the op by its bfloat16 form alone, and refuses a graph with another one.
        eager = torch.compiler.is_compiling() and weight.dtype is not torch.bfloat16
        grouped_mm = _grouped_mm_between_graphs if eager else _grouped_mm
        output = grouped_mm(rows.to(weight.dtype), weight, ends)
        return output if self.bias is None else output.add_(per_row(self.bias, expert_of_row))


def expert_modules(model: nn.Module) -> Iterator[nn.Module]:
    """The modules in which transformers dispatches experts."""
    for module in model.modules():
        marks = ("num_experts", "is_transposed", "has_gate", "has_bias", "down_proj")
        if all(hasattr(module, mark) for mark in marks):
            yield module


def up_projection(experts: Any) -> ExpertWeights:
    """Gate and up in one, or up alone where the experts have no gate."""
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    return _weights(experts, name)


def down_projection(experts: Any) -> ExpertWeights:
    return _weights(experts, "down_proj")


def activate(experts: Any, projected: torch.Tensor) -> torch.Tensor:
    """The module's own gate and activation between the projections."""
    function = experts._apply_gate if experts.has_gate else experts.act_fn
    activated: torch.Tensor = function(projected)
    return activated


def finish(experts: Any, rows: torch.Tensor) -> torch.Tensor:
    """The norm after each expert, where the module has one."""
    if getattr(experts, "has_post_expert_norm", False):
        normed: torch.Tensor = experts.post_expert_norm(rows)
        return normed
    return rows


def each_expert(experts: Any) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    """For each expert what it makes of its rows, `[n, hidden]` -> `[n, hidden]`."""
    ups, downs = up_projection(experts).each(), down_projection(experts).each()
    return [partial(_one_expert, experts, up, down) for up, down in zip(ups, downs, strict=True)]


def all_experts_grouped(
    experts: Any, rows: torch.Tensor, expert_of_row: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """`[S, hidden]`, sorted by expert, through each row's expert with grouped matmuls."""
    projected = up_projection(experts).apply_grouped(rows, expert_of_row, ends)
    hidden = activate(experts, projected)
    return finish(experts, down_projection(experts).apply_grouped(hidden, expert_of_row, ends))


def grouped_obstacle(experts: Any) -> str | None:
    """Why torch's grouped matmul cannot run these experts, or `None`.

    It may still read the offsets; see `grouped_drawback`.
    """
    weight = down_projection(experts).weight
    if weight.dim() != 3 or not weight.dtype.is_floating_point:
        return "grouped matmul takes unquantised stacks of expert weights"
    row_bytes = [size * weight.element_size() for size in weight.shape[1:]]
    if any(size % 16 for size in row_bytes):
        return "grouped matmul needs hidden and expert sizes of a multiple of 16 bytes"
    if weight.is_cuda and torch.cuda.get_device_capability(weight.device) < (8, 0):
        return "grouped matmul on CUDA needs compute capability 8.0 or newer"
    return None


def grouped_drawback(experts: Any) -> str | None:
    """Why torch's grouped matmul cannot run these experts, or not without a sync, or `None`.

    Its kernel for all groups takes bfloat16 on compute capability 9.0 and 10.x; the fallback of
    every other GPU copies the offsets to the host (aten/src/ATen/native/cuda/GroupedBlas.cpp).
    """
    obstacle = grouped_obstacle(experts)
    weight = down_projection(experts).weight
    if obstacle is not None or not weight.is_cuda:
        return obstacle
    major, _ = torch.cuda.get_device_capability(weight.device)
    if weight.dtype == torch.bfloat16 and major in (9, 10):
        return None
    return "grouped matmul of this dtype reads the offsets on this GPU"


def _grouped_mm(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return F.grouped_mm(rows, weight, offs=ends)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _grouped_mm_between_graphs(
    rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    return _grouped_mm(rows, weight, ends)


def _linear(
    weight: torch.Tensor, bias: torch.Tensor | None, rows: torch.Tensor, *, is_transposed: bool
) -> torch.Tensor:
    if not is_transposed:
        return F.linear(rows, weight, bias)
    output = rows @ weight
    return output if bias is None else output + bias


def _one_expert(
    experts: Any,
    up: Callable[[torch.Tensor], torch.Tensor],
    down: Callable[[torch.Tensor], torch.Tensor],
    rows: torch.Tensor,
) -> torch.Tensor:
    return finish(experts, down(activate(experts, up(rows))))


def _weights(experts: Any, name: str) -> ExpertWeights:
    bias = getattr(experts, f"{name}_bias") if experts.has_bias else None
    return ExpertWeights(getattr(experts, name), bias, experts.is_transposed)
