"""Matrix products that take `out_dtype`, which have CUDA kernels only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def _product(op: Any) -> Callable[..., torch.Tensor]:
    """`op(a, b)` of half-precision factors, its sums kept in `out_dtype`."""

    def kernel(
        a: torch.Tensor,
        b: torch.Tensor,
        out_dtype: torch.dtype,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        result: torch.Tensor = op(a.to(out_dtype), b.to(out_dtype))
        return result if out is None else out.copy_(result)

    return kernel


def _sum_and_product(op: Any) -> Callable[..., torch.Tensor]:
    """`op(base, a, b)` in the same way."""

    def kernel(
        base: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        out_dtype: torch.dtype,
        *,
        beta: float = 1,
        alpha: float = 1,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        result: torch.Tensor = op(
            base.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha
        )
        return result if out is None else out.copy_(result)

    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    f"aten::{name}.{overload}": kernel(getattr(aten, name).default)
    for name, kernel in (
        ("mm", _product),
        ("bmm", _product),
        ("addmm", _sum_and_product),
        ("baddbmm", _sum_and_product),
    )
    for overload in ("dtype", "dtype_out")
}
"""Full op name -> what computes it on host tensors."""
