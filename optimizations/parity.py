"""How far two variants of one computation may differ, by dtype and device."""

from __future__ import annotations

import torch


def same_order_tolerance(dtype: torch.dtype) -> tuple[float, str]:
    """For variants that add in the baseline's order.

    Exact without CUDA. On CUDA the baseline does not repeat itself to the last bit, because
    attention's backward and `index_add_` add with atomics.
    """
    if not torch.cuda.is_available():
        return 0.0, "same operations in the same order"
    tolerance, _ = other_order_tolerance(dtype)
    return tolerance, "same order of operations, but CUDA kernels add gradients in no fixed order"


def other_order_tolerance(dtype: torch.dtype) -> tuple[float, str]:
    """For variants that compute the same sums in another order or through another kernel."""
    # Some hundred roundings of the dtype: errors of layers add up and cancel in part.
    tolerance = min(0.05, 256 * torch.finfo(dtype).eps)
    return tolerance, f"another order of additions in {str(dtype).removeprefix('torch.')}"
