"""Stands for the packages `flash_attn` (2) and `flash_attn_interface` (3), which need a GPU.

Same names, same signatures, same limits; libraries ask for the signatures to learn what a version
can do.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.cuda import flash_modules
from harness.emulator.kernels.flash_kernel import FlashAttention
from harness.emulator.kernels.packed_kernels import Attention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSION_2, VERSION_3 = "2.8.3", "3.0.0"
LARGEST_HEAD = 256
_HALF = (torch.float16, torch.bfloat16)

_DENSE = ("q", "k", "v")
"""`(batch, length, heads, size)` each; the result is laid out as the query."""
_VARLEN = (*_DENSE, "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
"""`(tokens, heads, size)` each, bounds of the documents (int32), and their largest lengths."""
_NO_WINDOW = (-1, -1)
_OPTIONS_2: dict[str, Any] = {
    "dropout_p": 0.0, "softmax_scale": None, "causal": False, "window_size": _NO_WINDOW,
    "softcap": 0.0, "alibi_slopes": None, "deterministic": False, "return_attn_probs": False,
}  # fmt: skip
_USED_3: dict[str, Any] = {"seqused_q": None, "seqused_k": None}
_OPTIONS_3: dict[str, Any] = {
    "softmax_scale": None, "causal": False, "qv": None, "q_descale": None, "k_descale": None,
    "v_descale": None, "window_size": _NO_WINDOW, "attention_chunk": 0, "softcap": 0.0,
    "num_splits": 1, "pack_gqa": None, "deterministic": False, "sm_margin": 0,
    "return_attn_probs": False,
}  # fmt: skip


def _function(
    name: str, tensors: tuple[str, ...], options: Mapping[str, Any], probabilities: tuple[Any, ...]
) -> Callable[..., Any]:
    """A function of the package: its signature as declared, its result by the kernel.

    With `return_attn_probs` it returns output, log-sum-exp and `probabilities`.
    """
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature(
        [
            *(Parameter(tensor, kind) for tensor in tensors),
            *(Parameter(option, kind, default=default) for option, default in options.items()),
        ]
    )

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        out, lse = _attend(given.arguments)
        return (out, lse, *probabilities) if given.arguments["return_attn_probs"] else out

    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature  # type: ignore[attr-defined]  # a function takes attributes
    return call


def _attend(given: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = (given[name] for name in _DENSE)
    _check(q)
    scale, window = given["softmax_scale"], given["window_size"]
    left, right = (-1 if side is None else side for side in window)
    settings = Attention(
        float(q.shape[-1] ** -0.5 if scale is None else scale),
        given["causal"], left, right, float(given["softcap"]),
    )  # fmt: skip
    result: tuple[torch.Tensor, torch.Tensor] = FlashAttention.apply(
        q, k, v, given.get("cu_seqlens_q"), given.get("cu_seqlens_k"),
        given.get("max_seqlen_q", q.shape[1]), given.get("max_seqlen_k", k.shape[1]), settings,
    )  # fmt: skip
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


flash_attn_func = _function("flash_attn_func", _DENSE, _OPTIONS_2, (None,))
flash_attn_varlen_func = _function(
    "flash_attn_varlen_func", _VARLEN, {**_OPTIONS_2, "block_table": None}, (None,)
)
flash_attn_3_func = _function("flash_attn_func", _DENSE, _OPTIONS_3, ())
flash_attn_3_varlen_func = _function(
    "flash_attn_varlen_func", _VARLEN, {**_USED_3, **_OPTIONS_3}, ()
)


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
    **flash_modules.MODULES,
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
