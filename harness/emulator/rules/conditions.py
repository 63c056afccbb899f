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


def below_ampere(args: Args, kwargs: Kwargs) -> int:
    return 1 if torch.cuda.get_device_capability() < (8, 0) else 0


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
