"""Stands for what else people import from `flash_attn`: rotary embedding, norms, cross entropy.

Same names and parameters, by their formulas. Nothing here waits, as in the package.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def rotate_half(x: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """`(..., size)`: halves, or neighbours where interleaved, swapped and one negated."""
    if interleaved:
        pairs = x.view(*x.shape[:-1], -1, 2)
        return torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary_emb_torch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """`(..., length, heads, size)` turned by `(length, rotary size / 2)`."""
    if interleaved:
        cos, sin = (t.repeat_interleave(2, dim=-1).unsqueeze(-2) for t in (cos, sin))
    else:
        cos, sin = (torch.cat((t, t), dim=-1).unsqueeze(-2) for t in (cos, sin))
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    turned = turned * cos + rotate_half(turned, interleaved) * sin
    return torch.cat((turned, rest), dim=-1).to(x.dtype)


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> torch.Tensor:
    """`(batch, length, heads, size)`, or `(tokens, heads, size)` with `cu_seqlens`."""
    positions = _positions(x, seqlen_offsets, cu_seqlens)
    out = apply_rotary_emb_torch(x, cos[positions], sin[positions], interleaved)
    return x.copy_(out) if inplace else out


def _positions(
    x: torch.Tensor, offsets: int | torch.Tensor, cu_seqlens: torch.Tensor | None
) -> torch.Tensor:
    """Position of each token, with the dimensions of `x` before the heads."""
    if cu_seqlens is not None:
        tokens = torch.arange(x.shape[0], device=x.device)
        document = torch.searchsorted(cu_seqlens[1:].long(), tokens, right=True)
        start = cu_seqlens[document].long()
        return tokens - start + (offsets if isinstance(offsets, int) else offsets[document])
    positions = torch.arange(x.shape[1], device=x.device)
    return positions + (offsets if isinstance(offsets, int) else offsets[:, None])


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cos_k: torch.Tensor | None = None,
    sin_k: torch.Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    num_heads_q: int | None = None,
) -> torch.Tensor:
    """`(batch, length, 3, heads, size)`: query and key turned in place."""
    if num_heads_q is not None:
        heads = (qkv.shape[2] - num_heads_q) // 2
        query, key = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q : num_heads_q + heads]
    else:
        query, key = qkv[:, :, 0], qkv[:, :, 1]
    cos_k, sin_k = (cos if cos_k is None else cos_k), (sin if sin_k is None else sin_k)
    query.copy_(apply_rotary_emb(query, cos, sin, interleaved, False, seqlen_offsets))
    key.copy_(apply_rotary_emb(key, cos_k, sin_k, interleaved, False, seqlen_offsets))
    return qkv


def apply_rotary_emb_kv_(
    kv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
) -> torch.Tensor:
    """`(batch, length, 2, heads, size)`: the key turned in place."""
    key = kv[:, :, 0]
    key.copy_(apply_rotary_emb(key, cos, sin, interleaved, False, seqlen_offsets))
    return kv


class RotaryEmbedding(nn.Module):
    """Turns query and key by tables that grow with the longest sequence so far."""

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        pos_idx_in_fp32: bool = True,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.dim, self.base, self.interleaved = dim, float(base), interleaved
        self.scale_base = scale_base
        frequencies = torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim
        self.register_buffer("inv_freq", 1.0 / base**frequencies, persistent=False)
        self._length = 0
        self._cos_cached: torch.Tensor | None = None
        self._sin_cached: torch.Tensor | None = None

    def _update_cos_sin_cache(self, seqlen: int, device: Any = None, dtype: Any = None) -> None:
        cached = self._cos_cached
        if cached is None or seqlen > self._length or cached.dtype != dtype:
            self._length = seqlen
            positions = torch.arange(seqlen, device=device, dtype=torch.float32)
            frequencies: Any = self.inv_freq
            angles = torch.outer(positions, frequencies.to(device))
            self._cos_cached, self._sin_cached = angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(
        self,
        qkv: torch.Tensor,
        kv: torch.Tensor | None = None,
        seqlen_offset: int | torch.Tensor = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Any:
        """`(batch, length, 3, heads, size)`, or a query and `(batch, length, 2, heads, size)`."""
        offset = seqlen_offset if isinstance(seqlen_offset, int) else 0
        length = qkv.shape[1] + offset if max_seqlen is None else max_seqlen
        self._update_cos_sin_cache(length, qkv.device, qkv.dtype)
        cos, sin = self._cos_cached, self._sin_cached
        assert cos is not None and sin is not None  # noqa: PT018 - one statement about one cache
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, cos, sin, interleaved=self.interleaved, seqlen_offsets=seqlen_offset,
                num_heads_q=num_heads_q,
            )  # fmt: skip
        query = apply_rotary_emb(qkv, cos, sin, self.interleaved, False, seqlen_offset)
        return query, apply_rotary_emb_kv_(kv, cos, sin, self.interleaved, seqlen_offset)


def layer_norm_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None = None,
    x1: torch.Tensor | None = None,
    weight1: torch.Tensor | None = None,
    bias1: torch.Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    is_rms_norm: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
) -> Any:
    """Dropout, residual and norm at once; with `prenorm` also what the next layer adds to."""
    if rowscale is not None:
        x = x * rowscale.unsqueeze(-1)
    total = F.dropout(x, dropout_p) if dropout_p else x
    if x1 is not None:
        total = total + (F.dropout(x1, dropout_p) if dropout_p else x1)
    if residual is not None:
        total = total + residual
    dtype = out_dtype or x.dtype
    summed = total.float() if residual_in_fp32 or residual is None else total

    def norm(scale: torch.Tensor, shift: torch.Tensor | None) -> torch.Tensor:
        scale = scale.float() + 1.0 if zero_centered_weight else scale.float()
        size, values = (total.shape[-1],), total.float()
        if is_rms_norm:
            normed = F.rms_norm(values, size, scale, eps)
            return (normed if shift is None else normed + shift).to(dtype)
        return F.layer_norm(values, size, scale, None if shift is None else shift.float(), eps).to(
            dtype
        )

    results: list[Any] = [norm(weight, bias)]
    if weight1 is not None:
        results.append(norm(weight1, bias1))
    if prenorm:
        results.append(summed if residual_in_fp32 else summed.to(x.dtype))
    if return_dropout_mask:
        results += [None, None] if x1 is not None else [None]
    return results[0] if len(results) == 1 else tuple(results)


def rms_norm_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None = None,
    x1: torch.Tensor | None = None,
    weight1: torch.Tensor | None = None,
    bias1: torch.Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
) -> Any:
    """`layer_norm_fn` without the mean."""
    return layer_norm_fn(
        x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p, rowscale, prenorm,
        residual_in_fp32, zero_centered_weight, True, return_dropout_mask, out_dtype,
    )  # fmt: skip


class RMSNorm(nn.Module):
    """The Triton norm as a module."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        dropout_p: float = 0.0,
        zero_centered_weight: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.eps, self.zero_centered_weight = eps, zero_centered_weight
        self.drop = nn.Dropout(dropout_p) if dropout_p > 0.0 else None
        fill = torch.zeros if zero_centered_weight else torch.ones
        self.weight = nn.Parameter(fill(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        prenorm: bool = False,
        residual_in_fp32: bool = False,
    ) -> Any:
        return rms_norm_fn(
            x, self.weight, None, residual=residual, eps=self.eps,
            dropout_p=self.drop.p if self.drop is not None and self.training else 0.0,
            prenorm=prenorm, residual_in_fp32=residual_in_fp32,
            zero_centered_weight=self.zero_centered_weight,
        )  # fmt: skip


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The norm of `flash_attn.ops.rms_norm`."""
    normed: torch.Tensor = rms_norm_fn(x, weight, None, eps=epsilon)
    return normed


def cross_entropy_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    precomputed_lse: torch.Tensor | None = None,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
    inplace_backward: bool = False,
    process_group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`(tokens, classes)` and `(tokens,)` -> losses and their part from the log-sum-exp."""
    scaled = logits.float() * logit_scale
    losses = F.cross_entropy(
        scaled, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="none"
    )
    z_losses = lse_square_scale * scaled.logsumexp(-1).square()
    z_losses = z_losses.masked_fill(labels == ignore_index, 0.0)
    return losses + z_losses, z_losses


class CrossEntropyLoss(nn.Module):
    """The fused loss as a module."""

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, reduction
        self.label_smoothing, self.logit_scale = label_smoothing, logit_scale
        self.lse_square_scale, self.return_z_loss = lse_square_scale, return_z_loss

    def forward(
        self,
        input: torch.Tensor,  # noqa: A002 - the package's own name
        target: torch.Tensor,
        precomputed_lse: torch.Tensor | None = None,
    ) -> Any:
        losses, z_losses = cross_entropy_loss(
            input, target, precomputed_lse, self.label_smoothing, self.logit_scale,
            self.lse_square_scale, self.ignore_index,
        )  # fmt: skip
        counted = (target != self.ignore_index).sum()

        def reduce(part: torch.Tensor) -> torch.Tensor:
            if self.reduction == "none":
                return part
            return part.sum() / counted if self.reduction == "mean" else part.sum()

        return (reduce(losses), reduce(z_losses)) if self.return_z_loss else reduce(losses)


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gated activation of `flash_attn.ops.activations`."""
    return F.silu(x) * y


MODULES: dict[str, dict[str, Any]] = {
    "flash_attn.layers": {},
    "flash_attn.layers.rotary": {
        "RotaryEmbedding": RotaryEmbedding, "apply_rotary_emb": apply_rotary_emb,
        "apply_rotary_emb_func": apply_rotary_emb_func,
        "apply_rotary_emb_kv_": apply_rotary_emb_kv_,
        "apply_rotary_emb_qkv_": apply_rotary_emb_qkv_,
        "apply_rotary_emb_torch": apply_rotary_emb_torch, "rotate_half": rotate_half,
    },
    "flash_attn.losses": {},
    "flash_attn.losses.cross_entropy": {"CrossEntropyLoss": CrossEntropyLoss},
    "flash_attn.ops": {},
    "flash_attn.ops.activations": {"swiglu": swiglu},
    "flash_attn.ops.rms_norm": {"RMSNorm": RMSNorm, "rms_norm": rms_norm},
    "flash_attn.ops.triton": {},
    "flash_attn.ops.triton.cross_entropy": {"cross_entropy_loss": cross_entropy_loss},
    "flash_attn.ops.triton.layer_norm": {
        "RMSNorm": RMSNorm, "layer_norm_fn": layer_norm_fn, "rms_norm_fn": rms_norm_fn,
    },
    "flash_attn.ops.triton.rotary": {"apply_rotary": apply_rotary_emb},
}  # fmt: skip
"""Module -> its public names."""
