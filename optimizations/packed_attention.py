"""Attention over one packed row: with a dense mask, or document by document (varlen).

Tensors are laid out as transformers passes them: query `[1, H, T, D]`, key and value
`[1, H_kv, T, D]`; the result is `[1, T, H, D]`. A query sees itself and earlier keys of its own
document, less than `window` tokens back where there is a window.
"""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F

from optimizations.document_metadata import causal_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from optimizations.document_metadata import Boundaries


@dataclass(frozen=True)
class AttentionSettings:
    """What an attention module fixes for its calls."""

    scaling: float | None
    """Factor on the logits; `None` is `1 / sqrt(D)`."""
    dropout: float
    window: int | None
    sinks: torch.Tensor | None
    """`[H]`: a logit per head that takes probability and gives no value (gpt-oss)."""


def dense_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    settings: AttentionSettings,
) -> torch.Tensor:
    """Attention with an additive mask `[1, 1, T, T]` that holds documents and window already."""
    # With a mask, no fused CUDA kernel takes fewer key heads than query heads.
    num_groups = query.shape[1] // key.shape[1]
    key, value = _repeat_heads(key, num_groups), _repeat_heads(value, num_groups)
    if settings.sinks is None:
        output = F.scaled_dot_product_attention(
            query, key, value, mask, settings.dropout, scale=settings.scaling
        )
    else:
        output = _attention_with_sinks(query, key, value, mask, settings.sinks, settings)
    return output.transpose(1, 2).contiguous()


class VarlenAttention:
    """Attention from boundaries alone: one kernel on CUDA, one call a document elsewhere."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        boundaries: Boundaries,
        settings: AttentionSettings,
    ) -> torch.Tensor:
        """`[1, H, T, D]` and `[1, H_kv, T, D]` -> `[1, T, H, D]`."""
        if query.is_cuda:
            # [1, H, T, D] -> [T, H, D], the layout of varlen kernels.
            query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
            return self._kernel(query, key, value, boundaries, settings)[None]
        assert boundaries.offsets is not None, "attention by document slices at host offsets"
        outputs = [
            _document_attention(
                query[:, :, start:stop], key[:, :, start:stop], value[:, :, start:stop], settings
            )
            for start, stop in zip(boundaries.offsets, boundaries.offsets[1:], strict=False)
        ]
        return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()

    @cached_property
    def _kernel(self) -> Callable[..., torch.Tensor]:
        # Looked up once: in each layer, a search for a package that is not there and a signature
        # would take the host longer than the launch.
        if has_flash_attn():
            return _flash_attn_kernel
        return partial(_torch_varlen_kernel, _torch_varlen_parameters())


def varlen_obstacle(
    device: torch.device, dtype: torch.dtype, *, sinks: bool, window: bool, dropout: bool
) -> str | None:
    """Why `varlen_attention` cannot run, or `None`. Only CUDA kernels have limits."""
    if device.type != "cuda":
        return None
    if dtype not in (torch.float16, torch.bfloat16):
        return f"varlen kernels on CUDA take float16 or bfloat16, and this model is {dtype}"
    if sinks:
        return "varlen kernels have no attention sinks; use attention='sdpa-mask'"
    if has_flash_attn():
        return None
    if dropout:
        return "torch.nn.attention.varlen has no dropout; install flash-attn or set it to 0"
    if window and "window_size" not in _torch_varlen_parameters():
        return "this torch's varlen attention has no sliding window; install flash-attn"
    return None


def has_flash_attn() -> bool:
    """Whether flash-attn is installed."""
    return importlib.util.find_spec("flash_attn") is not None


def _flash_attn_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    boundaries: Boundaries,
    settings: AttentionSettings,
) -> torch.Tensor:
    from flash_attn import flash_attn_varlen_func

    output: torch.Tensor = flash_attn_varlen_func(
        query,
        key,
        value,
        boundaries.cu_seqlens,
        boundaries.cu_seqlens,
        boundaries.max_seqlen,
        boundaries.max_seqlen,
        dropout_p=settings.dropout,
        softmax_scale=settings.scaling,
        causal=True,
        window_size=_causal_window(settings.window),
    )
    return output


def _torch_varlen_kernel(
    parameters: frozenset[str],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    boundaries: Boundaries,
    settings: AttentionSettings,
) -> torch.Tensor:
    from torch.nn.attention import varlen

    options: dict[str, Any] = {}
    # The first releases scale by the head size alone and say `is_causal`; later ones take a window,
    # of which causal is a case.
    if "scale" in parameters:
        options["scale"] = settings.scaling
    elif settings.scaling is not None:
        query = query * (settings.scaling * query.shape[-1] ** 0.5)
    if "window_size" in parameters:
        options["window_size"] = _causal_window(settings.window)
    else:
        options["is_causal"] = True
    num_groups = query.shape[1] // key.shape[1]
    if "enable_gqa" in parameters:
        options["enable_gqa"] = num_groups > 1
    else:
        key, value = (t.repeat_interleave(num_groups, dim=1) for t in (key, value))
    # Typed by hand: it returns one tensor unless asked for auxiliary outputs.
    attend = cast("Callable[..., torch.Tensor]", varlen.varlen_attn)
    return attend(
        query,
        key,
        value,
        boundaries.cu_seqlens,
        boundaries.cu_seqlens,
        boundaries.max_seqlen,
        boundaries.max_seqlen,
        **options,
    )


def _torch_varlen_parameters() -> frozenset[str]:
    from torch.nn.attention import varlen

    return frozenset(inspect.signature(varlen.varlen_attn).parameters)


def _causal_window(window: int | None) -> tuple[int, int]:
    """Keys to the left and right of a query; a window of `w` tokens holds the query itself."""
    return (-1 if window is None else window - 1, 0)


def _document_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, settings: AttentionSettings
) -> torch.Tensor:
    """Causal attention inside one document, `[1, H, n, D]`."""
    num_groups = query.shape[1] // key.shape[1]
    key, value = _repeat_heads(key, num_groups), _repeat_heads(value, num_groups)
    length = query.shape[2]
    within_window = settings.window is None or settings.window >= length
    if settings.sinks is None and within_window:
        return F.scaled_dot_product_attention(
            query, key, value, None, settings.dropout, is_causal=True, scale=settings.scaling
        )
    # A fused kernel knows this pattern and is never handed a mask.
    window = None if within_window else settings.window
    mask = causal_mask(length, window, query.dtype, query.device)
    if settings.sinks is None:
        return F.scaled_dot_product_attention(
            query, key, value, mask, settings.dropout, scale=settings.scaling
        )
    return _attention_with_sinks(query, key, value, mask, settings.sinks, settings)


def _attention_with_sinks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    sinks: torch.Tensor,
    settings: AttentionSettings,
) -> torch.Tensor:
    """Softmax over the keys and one sink per head, as gpt-oss's eager attention computes it.

    Materialises the logits `[1, H, T, T + 1]`: no SDPA kernel takes sinks.
    """
    scaling = settings.scaling if settings.scaling is not None else query.shape[-1] ** -0.5
    logits = torch.matmul(query, key.transpose(2, 3)) * scaling + mask
    sink_logits = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, query.shape[2], 1)
    logits = torch.cat([logits, sink_logits], dim=-1)
    # Without this shift, low-precision exponentials overflow.
    logits = logits - logits.max(dim=-1, keepdim=True).values
    probabilities = F.softmax(logits, dim=-1, dtype=logits.dtype)[..., :-1]
    probabilities = F.dropout(probabilities, settings.dropout).to(value.dtype)
    return torch.matmul(probabilities, value)


def _repeat_heads(tensor: torch.Tensor, num_groups: int) -> torch.Tensor:
    """`[1, H_kv, T, D]` -> `[1, H_kv * num_groups, T, D]`, each head beside its copies."""
    return tensor if num_groups == 1 else tensor.repeat_interleave(num_groups, dim=1)
