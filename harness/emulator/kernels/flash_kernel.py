"""One call of a flash attention kernel: an op with values, shapes and a gradient.

A length given as a device tensor is read where the kernel is called, in forward and again in
backward, as the packages do.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.emulator.kernels.packed_kernels import (
    Attention,
    Packed,
    packed_backward,
    packed_forward,
)
from harness.emulator.tensors.reading import Reading
from harness.record.sync_kinds import SyncKind

_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "int max_q, int max_k, float scale, bool causal, int left, int right, float softcap"
)
_NUM_TENSORS, _NUM_LENGTHS = len(Packed._fields), 2
_library = torch.library.Library("gapless_flash", "DEF")
_library.define(f"forward({_INPUTS}) -> (Tensor, Tensor)")
_library.define(
    f"backward(Tensor grad, Tensor out, Tensor lse, {_INPUTS}) -> (Tensor, Tensor, Tensor)"
)


def _forward(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return packed_forward(*_packed(inputs))


def _backward(
    grad: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, *inputs: Any
) -> tuple[torch.Tensor, ...]:
    return packed_backward(grad, *_packed(inputs))


def _packed(inputs: tuple[Any, ...]) -> tuple[Packed, Attention]:
    return Packed(*inputs[:_NUM_TENSORS]), Attention(*inputs[_NUM_TENSORS + _NUM_LENGTHS :])


def _forward_shapes(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: Any, *others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    rows = q.shape[:-1] if cu_seqlens_q is None else q.shape[:2]
    lse_shape = (*rows[:-2], rows[-1], rows[-2])
    return out, q.new_empty(lse_shape, dtype=torch.float32)


def _backward_shapes(
    grad: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, *inputs: Any
) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in inputs[:3])


_library.impl("forward", _forward, "CPU")
_library.impl("backward", _backward, "CPU")
_library.impl("forward", _forward_shapes, "Meta")
_library.impl("backward", _backward_shapes, "Meta")
_forward_op = torch.ops.gapless_flash.forward.default
_backward_op = torch.ops.gapless_flash.backward.default


class FlashAttention(torch.autograd.Function):
    """Output and log-sum-exp. `cu_seqlens` of `None`: a batch of equal rows."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor | None,
        cu_seqlens_k: torch.Tensor | None,
        max_q: Any,
        max_k: Any,
        settings: Attention,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        packed = Packed(q, k, v, cu_seqlens_q, cu_seqlens_k)
        out, lse = _forward_op(*packed, _host(max_q), _host(max_k), *settings)
        ctx.save_for_backward(out, lse, *packed)
        ctx.lengths, ctx.settings = (max_q, max_k), settings
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        max_q, max_k = (_host(length) for length in ctx.lengths)
        grads = _backward_op(grad, *ctx.saved_tensors, max_q, max_k, *ctx.settings)
        return *grads, None, None, None, None, None


def _host(length: Any) -> int:
    """The packages' kernels take an integer, so a tensor is read where they are called."""
    with Reading(SyncKind.IMPLICIT_SCALAR_ARG):
        return int(length)
