"""Scaled dot product attention on the emulated device, by the backend that CUDA would choose.

torch picks the backend by device type, and for an unknown device falls back to plain matmuls, which
would show a memory and op pattern that no GPU has. The entry is therefore registered once for
PrivateUse1, and runs the flash or memory-efficient op, whose autograd formulas torch brings.
"""

from __future__ import annotations

from functools import cache

import torch

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


@cache
def register_attention() -> torch.library.Library:
    """Register the entry; the registration costs nothing while no device is active."""
    library = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")  # type: ignore[no-untyped-call]
    library.impl("scaled_dot_product_attention", attention_entry)  # type: ignore[no-untyped-call]
    return library


def attention_entry(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`F.scaled_dot_product_attention`: (..., heads, length, head size) -> the query's shape."""
    backend = choose_backend(query, key, value, attn_mask, enable_gqa)
    if backend == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if backend == "efficient":
        return _efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
    result: torch.Tensor = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


def choose_backend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    enable_gqa: bool,
) -> str:
    """`flash`, `efficient` or `math`, by the checks of torch's CUDA backend (sdp_utils.cpp)."""
    same_heads = query.dim() == 4 and query.shape[-3] == key.shape[-3] == value.shape[-3]
    if query.dim() != 4 or (attn_mask is not None and attn_mask.requires_grad):
        return "math"
    if (
        attn_mask is None
        and query.dtype in _HALF
        and query.shape[-1] == value.shape[-1] <= 256
        and (same_heads or enable_gqa)
        and torch._C._get_flash_sdp_enabled()
        and torch.cuda.get_device_capability() >= (8, 0)
    ):
        return "flash"
    if (
        query.dtype in (*_HALF, torch.float32)
        and same_heads
        and torch._C._get_mem_efficient_sdp_enabled()
    ):
        return "efficient"
    return "math"


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    size = query.shape[-1]
    scale = scale if scale is not None else size**-0.5
    padding = -size % 8  # the kernel takes head sizes that are multiples of 8
    if padding:
        query, key, value = (torch.nn.functional.pad(t, (0, padding)) for t in (query, key, value))
    result: torch.Tensor = aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, scale=scale
    )[0]
    return result[..., :size] if padding else result


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    bias = attn_mask
    if bias is not None:
        if bias.dtype is torch.bool:
            bias = torch.zeros_like(bias, dtype=query.dtype).masked_fill_(~bias, float("-inf"))
        bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    result: torch.Tensor = aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
    )[0]
    return result
