"""Autocast on the emulated device: `torch.autocast("cuda")` casts as it does on CUDA.

Autocast is decided by the dispatch key of the device, so the casting rules for CUDA are registered
once for PrivateUse1, and switching CUDA autocast on switches that on as well. They cost nothing
while autocast is off.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.cuda.private_backend import BACKEND_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

_LOWER_PRECISION = (
    "_convolution", "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "convolution",
    "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear",
    "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention", "_grouped_mm",
)  # fmt: skip
_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "group_norm", "frobenius_norm.dim",
    "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss",
    "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div",
    "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
)  # fmt: skip
_FLOAT32_UNLESS_DTYPE = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum",
    "sum.dim_IntList",
)  # fmt: skip
_WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler",
    "index_put", "tensordot", "scatter_add",
)  # fmt: skip
_AUTOCAST: Any = torch._C.DispatchKey.__members__["AutocastPrivateUse1"]
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def patch_autocast(patches: Patches) -> None:
    """Let CUDA autocast act on the emulated device while the patches hold."""
    _register()
    set_enabled, set_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype

    def enable(*args: Any) -> None:
        set_enabled(*args)
        if len(args) == 1:
            set_enabled(BACKEND_NAME, args[0])
        elif args[0] == "cuda":
            set_enabled(BACKEND_NAME, args[1])

    def choose(device_type: str, dtype: torch.dtype) -> None:
        set_dtype(device_type, dtype)
        if device_type == "cuda":
            set_dtype(BACKEND_NAME, dtype)

    patches.set(torch, "set_autocast_enabled", enable)
    patches.set(torch, "set_autocast_dtype", choose)


@cache
def _register() -> tuple[torch.library.Library, ...]:
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")  # type: ignore[no-untyped-call]
    others.fallback(torch.library.fallthrough_kernel)  # type: ignore[no-untyped-call]
    library = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")  # type: ignore[no-untyped-call]
    for names, kernel_of in (
        (_LOWER_PRECISION, _lower),
        (_FLOAT32, _float32),
        (_FLOAT32_UNLESS_DTYPE, _float32_unless_dtype),
        (_WIDEST, _widest),
    ):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name, kernel_of(op))  # type: ignore[no-untyped-call]
    return others, library


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        eligible = value.is_floating_point() and value.is_cuda and value.dtype is not torch.float64
        return value.to(dtype) if eligible and value.dtype is not dtype else value
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _call_in(op: Any, dtype: torch.dtype, args: Any, kwargs: Any) -> Any:
    with _no_autocast():
        return op(
            *[_cast(value, dtype) for value in args],
            **{name: _cast(value, dtype) for name, value in kwargs.items()},
        )


def _no_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST))


def _lower(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call_in(op, torch.get_autocast_dtype("cuda"), args, kwargs)

    return kernel


def _float32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call_in(op, torch.float32, args, kwargs)

    return kernel


def _float32_unless_dtype(op: Any) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]
    place = names.index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            # The dispatcher passes arguments by position wherever the schema lets it.
            args, kwargs = args[:place], {**kwargs, "dtype": args[place]}
        if kwargs.get("dtype") is None and args[0].dtype in (torch.float16, torch.bfloat16):
            kwargs["dtype"] = torch.float32
        with _no_autocast():
            return op(*args, **kwargs)

    return kernel


def _widest(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtypes = [
            value.dtype
            for value in args
            if isinstance(value, torch.Tensor) and value.is_cuda and value.dtype in _FLOATS
        ]
        widest = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cuda")
        return _call_in(op, widest, args, kwargs)

    return kernel
