"""Host computations for ops whose CPU kernel is missing, or is not what CUDA computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.kernels import (
    collective_kernels,
    packed_kernels,
    product_kernels,
    recurrent_kernels,
)

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def _histc(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if x.dtype.is_floating_point:
        return aten.histc.default(x, *args, **kwargs)  # type: ignore[no-any-return]
    counts: torch.Tensor = aten.histc.default(x.double(), *args, **kwargs)
    return counts.to(x.dtype)


def _record_stream(x: torch.Tensor, stream: Any) -> None:
    """Streams keep no memory of their own on the host."""


def _svd(x: torch.Tensor, *args: Any, driver: str | None = None, **kwargs: Any) -> Any:
    """The drivers to choose from are cuSOLVER's."""
    return aten._linalg_svd.default(x, *args, **kwargs)


def _zeros(size: list[int], **options: Any) -> torch.Tensor:
    """A zero tensor without storage must not reach a kernel below autograd: it has no data."""
    return torch.zeros(size, **options)


def _probabilities(
    query: torch.Tensor,
    key: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention weights and their log-sum-exp, in float32; heads of `key` are the query's."""
    scores = query.float() @ key.float().transpose(-1, -2)
    scores *= scale if scale is not None else query.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias.float()
    if is_causal:
        rows, columns = scores.shape[-2:]
        later = torch.ones(rows, columns, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    total = scores.logsumexp(-1, keepdim=True)
    # A row that may look at nothing gives zeros, not NaN.
    weights = (scores - total).exp().nan_to_num(nan=0.0)
    return weights, total.squeeze(-1)


def _share_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Repeat key or value heads (batch, heads, length, size) for grouped queries."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def _sum_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    return x if x.shape[1] == num_heads else x.view(x.shape[0], num_heads, -1, *x.shape[2:]).sum(2)


def _by_token(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As the CUDA kernels lay it out: heads innermost in memory but the size."""
    return x.to(dtype).transpose(1, 2).contiguous().transpose(1, 2)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    heads = query.shape[1]
    weights, total = _probabilities(query, _share_heads(key, heads), bias, is_causal, scale)
    return _by_token(weights @ _share_heads(value, heads).float(), query.dtype), total


def _attend_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    heads, kv_heads = query.shape[1], key.shape[1]
    keys, values = _share_heads(key, heads).float(), _share_heads(value, heads).float()
    weights, _ = _probabilities(query, keys, bias, is_causal, scale)
    grad = grad.float()
    grad_weights = grad @ values.transpose(-1, -2)
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    grad_scores *= scale if scale is not None else query.shape[-1] ** -0.5
    return (
        _by_token(grad_scores @ keys, query.dtype),
        _by_token(_sum_heads(grad_scores.transpose(-1, -2) @ query.float(), kv_heads), key.dtype),
        _by_token(_sum_heads(weights.transpose(-1, -2) @ grad, kv_heads), value.dtype),
    )


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, total = _attend(query, key, value, None, is_causal, scale)
    none = torch.empty(0)
    seed = torch.zeros(2, dtype=torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64)
    return out, total, none, none.clone(), query.shape[2], key.shape[2], seed, unused, none.clone()


def _flash_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *others: Any,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    return _attend_backward(grad, query, key, value, None, is_causal, scale)


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    out, total = _attend(query, key, value, attn_bias, is_causal, scale)
    seed = torch.zeros((), dtype=torch.int64)
    return out, total, seed, seed.clone()


def _efficient_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: Any,
    philox_offset: Any,
    dropout_p: float,
    grad_input_mask: Any,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    return *_attend_backward(grad, query, key, value, attn_bias, is_causal, scale), None


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::histc": _histc,
    # The device tensor has no conjugate or negative bit, so that its host twin must have none.
    "aten::_conj": aten.conj_physical.default,
    "aten::_neg_view": aten.neg.default,
    "aten::record_stream": _record_stream,
    "aten::_linalg_svd": _svd,
    "aten::_efficientzerotensor": _zeros,
    **product_kernels.KERNELS,
    **packed_kernels.KERNELS,
    **collective_kernels.KERNELS,
    "aten::_thnn_fused_lstm_cell": recurrent_kernels.lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": recurrent_kernels.lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": recurrent_kernels.gru_cell,
    "aten::_thnn_fused_gru_cell_backward": recurrent_kernels.gru_cell_backward,
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention": _efficient,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
}
"""Op name, or name with overload -> what computes it on host tensors, instead of the op itself.
Dropout inside attention is left out: it changes values, not which ops run or wait."""
