"""Attention over packed rows on host tensors, document by document in effect: a mask in one row.

Tensors are laid out as flash kernels take them: packed `(tokens, heads, size)`, or a batch of equal
rows `(batch, length, heads, size)`. Sums are kept in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Tensors = tuple[torch.Tensor, ...]


class Packed(NamedTuple):
    """The tensors of a call. Documents are told by their bounds, int32; `None` for equal rows."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_k: torch.Tensor | None = None


class Attention(NamedTuple):
    """What a call fixes besides its tensors."""

    scale: float
    causal: bool
    left: int = -1
    """Tokens a query sees before its own; -1 for all."""
    right: int = -1
    softcap: float = 0.0


def packed_forward(of: Packed, how: Attention) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, laid out as the query, and the log-sum-exp in float32: `(heads, tokens)` packed,
    `(batch, heads, length)` otherwise."""
    packed = of.cu_seqlens_q is not None
    q, k, v = (_rows(tensor, packed) for tensor in of[:3])
    k, v = (_share(tensor, q.shape[1]) for tensor in (k, v))
    weights, total, _ = _weights(q, k, _visible(q, k, of, how), how)
    out = (weights @ v).transpose(1, 2).to(of.query.dtype)
    return (out[0], total[0]) if packed else (out, total)


def packed_backward(grad: torch.Tensor, of: Packed, how: Attention) -> Tensors:
    """Gradients of query, key and value, each laid out as that tensor."""
    packed = of.cu_seqlens_q is not None
    q, grad_rows = _rows(of.query, packed), _rows(grad, packed)
    heads, kv_heads = q.shape[1], of.key.shape[-2]
    k, v = (_share(_rows(tensor, packed), heads) for tensor in (of.key, of.value))
    weights, _, capped = _weights(q, k, _visible(q, k, of, how), how)
    grad_weights = grad_rows @ v.transpose(-1, -2)
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    if how.softcap:
        grad_scores = grad_scores * (1 - (capped / how.softcap) ** 2)
    grad_scores = grad_scores * how.scale
    grads = (
        grad_scores @ k,
        _join(grad_scores.transpose(-1, -2) @ q, kv_heads),
        _join(weights.transpose(-1, -2) @ grad_rows, kv_heads),
    )
    return tuple(
        (rows.transpose(1, 2)[0] if packed else rows.transpose(1, 2)).to(like.dtype).contiguous()
        for rows, like in zip(grads, of[:3], strict=True)
    )


def _rows(tensor: torch.Tensor, packed: bool) -> torch.Tensor:
    """`(batch, heads, length, size)` in float32; a packed row is a batch of one."""
    return (tensor[None] if packed else tensor).transpose(1, 2).float()


def _share(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    groups = num_heads // tensor.shape[1]
    return tensor if groups == 1 else tensor.repeat_interleave(groups, dim=1)


def _join(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    batch, heads, *rest = tensor.shape
    return tensor.reshape(batch, num_heads, heads // num_heads, *rest).sum(2)


def _weights(q: torch.Tensor, k: torch.Tensor, visible: torch.Tensor, how: Attention) -> Tensors:
    """Attention weights, log-sum-exp, and the scores after the cap and before the mask."""
    scores = q @ k.transpose(-1, -2) * how.scale
    if how.softcap:
        scores = how.softcap * torch.tanh(scores / how.softcap)
    masked = scores.masked_fill(~visible, float("-inf"))
    total = masked.logsumexp(-1, keepdim=True)
    # A query that sees nothing gives zeros, not NaN.
    return (masked - total).exp().nan_to_num(nan=0.0), total.squeeze(-1), scores


def _visible(q: torch.Tensor, k: torch.Tensor, of: Packed, how: Attention) -> torch.Tensor:
    """`(length of q, length of k)`: which key each query sees. Rows end together, as in flash."""
    cu_seqlens_q, cu_seqlens_k = of.cu_seqlens_q, of.cu_seqlens_k
    if cu_seqlens_q is None or cu_seqlens_k is None:
        q_end, k_end = q.shape[2], k.shape[2]
        rows, columns = torch.arange(q_end), torch.arange(k_end)
        visible = torch.ones(q_end, k_end, dtype=torch.bool)
        shift = torch.tensor(k_end - q_end)
        distance = columns[None, :] - (rows[:, None] + shift)
    else:
        q_document, q_place = _places(cu_seqlens_q, q.shape[2])
        k_document, k_place = _places(cu_seqlens_k, k.shape[2])
        lengths_q, lengths_k = cu_seqlens_q.diff().long(), cu_seqlens_k.diff().long()
        shift = (lengths_k - lengths_q)[q_document.clamp(max=len(lengths_q) - 1)]
        visible = q_document[:, None] == k_document[None, :]
        distance = k_place[None, :] - (q_place + shift)[:, None]
    if how.causal:
        visible = visible & (distance <= 0)
    elif how.right >= 0:
        visible = visible & (distance <= how.right)
    if how.left >= 0:
        visible = visible & (distance >= -how.left)
    return visible


def _places(cu_seqlens: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Document of each token, and its place in it; tokens past the last document are their own."""
    bounds = cu_seqlens.long()
    token = torch.arange(length)
    document = torch.searchsorted(bounds, token, right=True) - 1
    return document, token - bounds[document.clamp(max=len(bounds) - 1)]


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Sequence[int] | None = None,
    *others: Any,
) -> Tensors:
    of = Packed(query, key, value, cu_seq_q, cu_seq_q if cu_seq_k is None else cu_seq_k)
    how = _varlen_settings(query, is_causal, scale, window_size)
    return *packed_forward(of, how), torch.zeros(2, dtype=torch.uint64)


def _varlen_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool,
    rng_state: torch.Tensor,
    scale: float | None = None,
    window_size: Sequence[int] | None = None,
) -> Tensors:
    of = Packed(query, key, value, cu_seq_q, cu_seq_q if cu_seq_k is None else cu_seq_k)
    return packed_backward(grad, of, _varlen_settings(query, is_causal, scale, window_size))


def _varlen_settings(
    query: torch.Tensor,
    is_causal: bool,
    scale: float | None,
    window_size: Sequence[int] | None,
) -> Attention:
    left, right = window_size or (-1, -1)
    causal = is_causal or (left, right) == (-1, 0)
    return Attention(query.shape[-1] ** -0.5 if scale is None else scale, causal, left, right)


KERNELS: dict[str, Callable[..., Any]] = {
    "torch_attn::_varlen_attn": _varlen,
    "torch_attn::_varlen_attn_backward": _varlen_backward,
}
"""Op name -> what computes it on host tensors."""
