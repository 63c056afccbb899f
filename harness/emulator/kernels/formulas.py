"""Shapes of ops that torch gives no meta kernel for, or one that does not fit an emulated GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_ALIGNMENT_BYTES = 16
"""Rows of a grouped matmul's result start at multiples of this."""


def _index_put(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *args: Any) -> torch.Tensor:
    return torch.empty_like(log_probs)


def _checks_pass(*args: Any, **kwargs: Any) -> bool:
    return True


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """(M, K) x (G, K, N), (G, M, K) x (K, N), (M, K) x (K, N) by groups of K, or batched."""
    size: tuple[int, ...]
    if a.dim() == b.dim() == 2:
        size = (0 if offs is None else offs.shape[0], a.shape[0], b.shape[1])
    elif a.dim() == b.dim() == 3:
        size = (a.shape[0], a.shape[1], b.shape[2])
    else:
        size = (a.shape[-2], b.shape[-1])
    dtype = out_dtype or a.dtype
    unit = _ALIGNMENT_BYTES // dtype.itemsize
    row = -(-size[-1] // unit) * unit
    stride = (row, 1) if len(size) == 2 else (size[1] * row, row, 1)
    return torch.empty_strided(size, stride, dtype=dtype, device="meta")


FORMULAS: dict[str, Callable[..., Any]] = {
    "aten::index_put": _index_put,
    "aten::_ctc_loss_backward": _ctc_loss_backward,
    "aten::equal": _checks_pass,
    "aten::allclose": _checks_pass,
    "aten::record_stream": _nothing,
    "aten::_assert_async": _nothing,
    "aten::_linalg_check_errors": _nothing,
    "aten::_grouped_mm": _grouped_mm,
}
"""Op name -> what gives its results for meta tensors."""
