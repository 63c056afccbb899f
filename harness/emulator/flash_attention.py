"""Stands for the packages `flash_attn` (2) and `flash_attn_interface` (3), which need a GPU.

Same signatures, same limits, values by attention per document, shapes by formula. What makes the
host wait is kept as the packages have it: a length given as a device tensor is read at each call of
a kernel, in forward and again in backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.packed_kernels import Attention, packed_backward, packed_forward
from harness.emulator.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION_2, VERSION_3 = "2.8.3", "3.0.0"
LARGEST_HEAD = 256
_HALF = (torch.float16, torch.bfloat16)

_SETTINGS = "int max_q, int max_k, float scale, bool causal, int left, int right, float softcap"
_LENGTHS = "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_library = torch.library.Library("gapless_flash", "DEF")
_library.define(
    f"forward(Tensor q, Tensor k, Tensor v, {_LENGTHS}, {_SETTINGS}) -> (Tensor, Tensor)"
)
_library.define(
    "backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_LENGTHS}, {_SETTINGS}) -> (Tensor, Tensor, Tensor)"
)


def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *settings: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    return packed_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, Attention(*settings))


def _backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *settings: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return packed_backward(grad, q, k, v, cu_seqlens_q, cu_seqlens_k, Attention(*settings))


def _forward_shapes(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: Any, *others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    lengths = (q.shape[1], q.shape[0]) if cu_seqlens_q is not None else (
        q.shape[0], q.shape[2], q.shape[1]
    )  # fmt: skip
    return out, q.new_empty(lengths, dtype=torch.float32)


def _backward_shapes(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(torch.empty_like(t) for t in (q, k, v))  # type: ignore[return-value]


_library.impl("forward", _forward, "CPU")
_library.impl("backward", _backward, "CPU")
_library.impl("forward", _forward_shapes, "Meta")
_library.impl("backward", _backward_shapes, "Meta")
_forward_op = torch.ops.gapless_flash.forward.default
_backward_op = torch.ops.gapless_flash.backward.default


class FlashAttention(torch.autograd.Function):
    """One call of a flash kernel. `cu_seqlens` of `None`: a batch of equal rows."""

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
        out, lse = _forward_op(
            q, k, v, cu_seqlens_q, cu_seqlens_k, _host(max_q), _host(max_k), *settings
        )
        ctx.save_for_backward(q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k)
        ctx.lengths, ctx.settings = (max_q, max_k), settings
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k = ctx.saved_tensors
        max_q, max_k = (_host(length) for length in ctx.lengths)
        grads = _backward_op(
            grad, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_q, max_k, *ctx.settings
        )
        return *grads, None, None, None, None, None


def _host(length: Any) -> int:
    """The packages' kernels take an integer, so a tensor is read where they are called."""
    with Reading("implicit_scalar_arg"):
        return int(length)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_q: Any,
    max_k: Any,
    *,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int | None, int | None],
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(q)
    left, right = (-1 if side is None else side for side in window_size)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    settings = Attention(float(scale), causal, left, right, float(softcap))
    result: tuple[torch.Tensor, torch.Tensor] = FlashAttention.apply(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, settings
    )
    return result


def _check(q: torch.Tensor) -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
    if not q.is_cuda:
        raise RuntimeError("Input tensor must be on CUDA device")
    if q.dtype not in _HALF:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    if q.shape[-1] > LARGEST_HEAD:
        raise RuntimeError("FlashAttention forward only supports head dimension at most 256")


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`(batch, length, heads, size)` -> the query's shape."""
    out, lse = _attend(
        q, k, v, None, None, q.shape[1], k.shape[1],
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
    )  # fmt: skip
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Any:
    """`(tokens, heads, size)`, documents from `cu_seqlens` (int32) -> the query's shape."""
    out, lse = _attend(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
    )  # fmt: skip
    return (out, lse, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`(batch, length, 3, heads, size)` -> `(batch, length, heads, size)`."""
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`(batch, length, heads, size)` and `(batch, length, 2, heads, size)`."""
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, *args, **kwargs)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Any:
    """`(tokens, 3, heads, size)` -> `(tokens, heads, size)`."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs
    )


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    """`(tokens, heads, size)` and `(tokens, 2, heads, size)`."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, *args, **kwargs)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Decoding: of no use in a training step, so only its existence is answered."""
    raise RuntimeError(
        "The stand-in for flash_attn has no decoding with a key-value cache; audit a training step."
    )


def flash_attn_3_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Version 3 of `flash_attn_func`."""
    out, lse = _attend(
        q, k, v, None, None, q.shape[1], k.shape[1],
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
    )  # fmt: skip
    return (out, lse) if return_attn_probs else out


def flash_attn_3_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Version 3 of `flash_attn_varlen_func`."""
    out, lse = _attend(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
    )  # fmt: skip
    return (out, lse) if return_attn_probs else out


def unpad_input(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    unused_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """`(batch, length, ...)` and a mask -> tokens, their indices, bounds, longest, used lengths."""
    mask = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = int(lengths.max().item())
    bounds = torch.nn.functional.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, bounds, longest, used


def pad_input(
    hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int
) -> torch.Tensor:
    """Tokens back into `(batch, length, ...)`, zeros where there is padding."""
    out = hidden_states.new_zeros((batch * seqlen, *hidden_states.shape[1:]))
    out[indices] = hidden_states
    return out.view(batch, seqlen, *hidden_states.shape[1:])


def index_first_axis(tensor: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Rows of the first dimension."""
    return tensor[indices]


_VERSION_2_NAMES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        flash_attn_func,
        flash_attn_varlen_func,
        flash_attn_qkvpacked_func,
        flash_attn_kvpacked_func,
        flash_attn_varlen_qkvpacked_func,
        flash_attn_varlen_kvpacked_func,
        flash_attn_with_kvcache,
    )
}
MODULES: dict[str, dict[str, Any]] = {
    "flash_attn": {**_VERSION_2_NAMES, "__version__": VERSION_2},
    "flash_attn.flash_attn_interface": _VERSION_2_NAMES,
    "flash_attn.bert_padding": {
        "unpad_input": unpad_input, "pad_input": pad_input, "index_first_axis": index_first_axis,
    },
    "flash_attn_interface": {
        "flash_attn_func": flash_attn_3_func,
        "flash_attn_varlen_func": flash_attn_3_varlen_func,
        "flash_attn_with_kvcache": flash_attn_with_kvcache,
    },
}  # fmt: skip
"""Module -> its public names."""
DISTRIBUTIONS = {
    "flash_attn": ("flash-attn", VERSION_2),
    "flash_attn_interface": ("flash-attn-3", VERSION_3),
}
"""Top-level module -> name and version of the package that ships it."""
