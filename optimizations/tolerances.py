"""How far a variant may differ from its baseline, and why."""

from __future__ import annotations

import torch


def same_order_tolerance(dtype: torch.dtype) -> tuple[float, str]:
    """For variants whose every number is the baseline's to the last bit."""
    return 0.0, f"the same operations in the same order round alike in {_short(dtype)}"


def other_order_tolerance(dtype: torch.dtype) -> tuple[float, str]:
    """For variants that compute the same sums in another order or through another kernel."""
    # Some hundred roundings of the dtype: errors of layers add up and cancel in part.
    tolerance = min(0.05, 256 * torch.finfo(dtype).eps)
    return tolerance, f"another order of additions in {_short(dtype)}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
