"""When a call waits, as functions of its arguments: each gives the waits of one call.

They are named for what they count, and used by the table of rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any = None) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs.get(name, default)


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def always(count: int) -> Callable[[Args, Kwargs], int]:
    def syncs(args: Args, kwargs: Kwargs) -> int:
        return count

    return syncs


def first_on_device(count: int) -> Callable[[Args, Kwargs], int]:
    def syncs(args: Args, kwargs: Kwargs) -> int:
        return count if type(args[0]) is EmulatedTensor else 0

    return syncs


def device_masks(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for i in args[1] if _is_mask(i) and type(i) is EmulatedTensor)


def host_indices(args: Args, kwargs: Kwargs) -> int:
    return sum(
        1
        for i in args[1]
        if i is not None and type(i) is not EmulatedTensor and not _is_mask(i) and i.numel() > 0
    )


def _becomes_masked_fill(args: Args, kwargs: Kwargs) -> bool:
    """Whether `x[mask] = number` takes the `masked_fill_` way, which expands no mask."""
    indices, value = args[1], args[2]
    accumulate = _argument(args, kwargs, 3, "accumulate", False)
    given = [index for index in indices if index is not None]
    return (
        not accumulate
        and value.numel() == 1
        and type(value) is not EmulatedTensor
        and len(given) == 1
        and _is_mask(given[0])
        and type(given[0]) is EmulatedTensor
    )


def put_masks(args: Args, kwargs: Kwargs) -> int:
    return 0 if _becomes_masked_fill(args, kwargs) else device_masks(args, kwargs)


def put_host_value(args: Args, kwargs: Kwargs) -> int:
    if type(args[2]) is EmulatedTensor or _becomes_masked_fill(args, kwargs):
        return 0
    return 1


def bincount(args: Args, kwargs: Kwargs) -> int:
    return 1 if args[0].dtype is torch.uint8 else 2


def histc(args: Args, kwargs: Kwargs) -> int:
    low, high = _argument(args, kwargs, 2, "min", 0), _argument(args, kwargs, 3, "max", 0)
    return 2 if low == high else 0


def repeats_without_size(args: Args, kwargs: Kwargs) -> int:
    return 2 if kwargs.get("output_size") is None else 0


def device_value(args: Args, kwargs: Kwargs) -> int:
    return 1 if type(_argument(args, kwargs, 2, "value")) is EmulatedTensor else 0


def device_fill(args: Args, kwargs: Kwargs) -> int:
    return 1 if type(_argument(args, kwargs, 3, "value")) is EmulatedTensor else 0


def device_bounds(args: Args, kwargs: Kwargs) -> int:
    bounds = (_argument(args, kwargs, 0, "start"), _argument(args, kwargs, 1, "end"))
    return sum(1 for bound in bounds if type(bound) is EmulatedTensor)


def isin_sorts(args: Args, kwargs: Kwargs) -> int:
    elements, tested = args[0], args[1]
    few = tested.numel() < 10 * elements.numel() ** 0.145
    return 0 if few or kwargs.get("assume_unique", False) else 2


def asks_for_check(args: Args, kwargs: Kwargs) -> int:
    return 1 if kwargs.get("check_errors", False) else 0


def one_hot_open(args: Args, kwargs: Kwargs) -> int:
    return 1 if _argument(args, kwargs, 1, "num_classes", -1) == -1 else 0


def host_operand(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for a in args if isinstance(a, torch.Tensor) and type(a) is not EmulatedTensor)


def not_empty(args: Args, kwargs: Kwargs) -> int:
    return 1 if args[0].numel() else 0


def larger_than_one_by_one(args: Args, kwargs: Kwargs) -> int:
    return 1 if args[0].numel() and args[0].shape[-1] > 1 else 0


def ctc_lengths(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for a in args[2:4] if type(a) is EmulatedTensor)


def grouped_by_fallback(args: Args, kwargs: Kwargs) -> int:
    """`_grouped_mm` with offsets, where the one kernel for all groups does not apply."""
    if _argument(args, kwargs, 2, "offs") is None:
        return 0
    capability = torch.cuda.get_device_capability()
    has_kernel = capability == (9, 0) or capability[0] == 10
    dtypes = {args[0].dtype, args[1].dtype, _argument(args, kwargs, 4, "out_dtype")}
    return 0 if has_kernel and dtypes <= {torch.bfloat16, None} else 1


def compares_data(args: Args, kwargs: Kwargs) -> int:
    """`equal` that cannot tell from the layouts alone."""
    left, right = args
    if left.shape != right.shape or not left.numel():
        return 0
    same = (
        type(left) is type(right) is EmulatedTensor
        and left.allocation is right.allocation
        and left.storage_offset() == right.storage_offset()
        and left.dtype == right.dtype
        and left.stride() == right.stride()
    )
    return 0 if same else 1


def singular_values(args: Args, kwargs: Kwargs) -> int:
    checks = 1 if kwargs.get("driver") == "gesvd" else 2
    return checks * not_empty(args, kwargs)


def pseudo_inverse(args: Args, kwargs: Kwargs) -> int:
    # Hermitian matrices go by their eigenvalues; the flag's place differs among the overloads.
    hermitian = any(value is True for value in (*args, *kwargs.values()))
    return (1 if hermitian else 2) * not_empty(args, kwargs)


_LARGEST_FUSED_MODE = 2048


def mode_of_long_slices(args: Args, kwargs: Kwargs) -> int:
    x = args[0]
    length = x.shape[_argument(args, kwargs, 1, "dim", -1)] if x.dim() else 1
    if length <= _LARGEST_FUSED_MODE:
        return 0
    each = 3 if x.dtype is torch.bool else 9
    return int(x.numel()) // length * each


def _unique_scans(x: torch.Tensor, dim: int, inverse: bool, counts: bool) -> int:
    """Thrust algorithms behind `unique` along a dimension: one for the length, three for the
    inverse, one for the counts."""
    return 1 + 3 * bool(inverse) + bool(counts) if x.shape[dim] else 0


def unique_dim(args: Args, kwargs: Kwargs) -> int:
    inverse = _argument(args, kwargs, 3, "return_inverse", False)
    counts = _argument(args, kwargs, 4, "return_counts", False)
    scans = _unique_scans(args[0], args[1], inverse, counts)
    return scans + 1 if scans else 0


def unique_dim_consecutive(args: Args, kwargs: Kwargs) -> int:
    inverse = _argument(args, kwargs, 2, "return_inverse", False)
    counts = _argument(args, kwargs, 3, "return_counts", False)
    return _unique_scans(args[0], args[1], inverse, counts)


def unique_consecutive_whole(args: Args, kwargs: Kwargs) -> int:
    return 1 if _argument(args, kwargs, 3, "dim") is None else 0


def unique_consecutive_along(args: Args, kwargs: Kwargs) -> int:
    dim = _argument(args, kwargs, 3, "dim")
    inverse = _argument(args, kwargs, 1, "return_inverse", False)
    counts = _argument(args, kwargs, 2, "return_counts", False)
    return 0 if dim is None else _unique_scans(args[0], dim, inverse, counts)


def not_scalar(args: Args, kwargs: Kwargs) -> int:
    return 1 if args[0].dim() else 0


def not_scalar_and_whole(args: Args, kwargs: Kwargs) -> int:
    """`prod` of all elements."""
    return not_scalar(args, kwargs) if _argument(args, kwargs, 1, "dim") is None else 0


def not_scalar_and_along(args: Args, kwargs: Kwargs) -> int:
    """`prod` along one dimension."""
    return not_scalar(args, kwargs) if _argument(args, kwargs, 1, "dim") is not None else 0


def several_along(args: Args, kwargs: Kwargs) -> int:
    """`cumprod` along more than one element."""
    length = args[0].shape[_argument(args, kwargs, 1, "dim")] if args[0].dim() else 1
    return 1 if length > 1 and args[0].numel() > 1 else 0


def value_needs_gradient(args: Args, kwargs: Kwargs) -> int:
    return 1 if getattr(_argument(args, kwargs, 2, "value"), "requires_grad", False) else 0
