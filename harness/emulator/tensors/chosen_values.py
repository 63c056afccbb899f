"""Results whose data or size would come out of data that is not there.

Used on shapes only. Choices that stay small (router indices, sort orders) are drawn and then exact
for everything downstream; sizes that depend on unknown data follow the stated policy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.tensors.choices import Choices

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Size = tuple[tuple[int, ...], torch.dtype]

_PICK_ALONG = {
    # Op -> (position of the output that holds indices, position of `dim`, its default).
    "aten::topk": (1, 2, -1),
    "aten::max": (1, 1, 0),
    "aten::min": (1, 1, 0),
    "aten::argmax": (0, 1, None),
    "aten::argmin": (0, 1, None),
    "aten::median": (1, 1, 0),
    "aten::kthvalue": (1, 2, -1),
    "aten::sort": (1, 1, -1),
    "aten::argsort": (0, 1, -1),
}
_LARGEST_MASK = 1 << 22


def drawn_values(
    op: str, args: Args, kwargs: Kwargs, results: Sequence[Any], choices: Choices
) -> dict[int, Callable[[], torch.Tensor]]:
    """Output position -> what draws its values, for outputs that are choices.

    `results` are meta tensors of the right shape.
    """
    if op in ("aten::any", "aten::all"):
        shape = tuple(results[0].shape)
        dtype = results[0].dtype
        return {0: partial(torch.full, shape, op == "aten::all", dtype=dtype)}
    if results[:1] and _is_flag(results[0]):
        # Nothing is unordered or infinite: `x == x` and `x != inf` hold, other comparisons do not.
        with_tensor = len(args) > 1 and isinstance(args[1], torch.Tensor)
        holds = with_tensor if op == "aten::eq" else op == "aten::ne" and not with_tensor
        return {0: partial(torch.full, (), holds, dtype=torch.bool)}
    if op == "aten::multinomial":
        shape = tuple(results[0].shape)
        return {0: partial(choices.pick, shape, -1, args[0].shape[-1])}
    if op not in _PICK_ALONG:
        return {}
    output, position, default = _PICK_ALONG[op]
    if len(results) <= output or results[output].dtype is not torch.int64:
        return {}
    source: torch.Tensor = args[0]
    dim = args[position] if len(args) > position else kwargs.get("dim", default)
    shape = tuple(results[output].shape)
    if op == "aten::sort" and kwargs.get("stable") is not None and "dim" in kwargs:
        dim = kwargs["dim"]
    if dim is None or not isinstance(dim, int) or source.dim() == 0:
        return {output: partial(choices.pick, shape, 0, max(source.numel(), 1))}
    num_classes = source.shape[dim]
    if op in ("aten::topk", "aten::sort", "aten::argsort") or len(shape) == source.dim():
        return {output: partial(choices.pick, shape, dim, num_classes)}
    kept = list(shape)
    kept.insert(dim % source.dim(), 1)
    return {output: partial(_squeezed, choices, tuple(kept), dim, num_classes)}


def _is_flag(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.dim() == 0 and result.dtype is torch.bool


def _squeezed(choices: Choices, shape: tuple[int, ...], dim: int, num_classes: int) -> torch.Tensor:
    return choices.pick(shape, dim, num_classes).squeeze(dim)


def data_dependent_sizes(
    op: str, args: Args, kwargs: Kwargs, choices: Choices
) -> list[Size] | None:
    """Sizes and dtypes of the outputs of an op whose sizes depend on data; `None` for others."""
    handler = _SIZES.get(op)
    return None if handler is None else handler(args, kwargs, choices)


def _host_mask(mask: torch.Tensor, choices: Choices) -> torch.Tensor | None:
    """The mask's values, drawn where unknown; `None` where it is too large to have any."""
    if type(mask) is not EmulatedTensor:
        return mask
    if mask.host_value is not None and mask.allocation.known:
        return mask.host_value
    return choices.mask(mask.shape) if mask.numel() <= _LARGEST_MASK else None


def _count_true(mask: torch.Tensor, choices: Choices) -> int:
    values = _host_mask(mask, choices)
    return mask.numel() // 2 if values is None else int(torch.count_nonzero(values))


def _nonzero(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size]:
    return [((_count_true(args[0], choices), args[0].dim()), torch.int64)]


def _masked_select(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size]:
    source, mask = args[0], args[1]
    shape = (
        torch.empty(source.shape, device="meta") + torch.empty(mask.shape, device="meta")
    ).shape
    repeats = max(torch.Size(shape).numel() // max(mask.numel(), 1), 1)
    return [((_count_true(mask, choices) * repeats,), source.dtype)]


def _index(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size] | None:
    source, indices = args[0], args[1]
    masks = [i for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]
    if not masks:
        return None
    expanded: list[torch.Tensor | None] = []
    for index in indices:
        if index is None:
            expanded.append(None)
        elif index.dtype in (torch.bool, torch.uint8):
            count = _count_true(index, choices)
            expanded.extend(
                torch.empty(count, dtype=torch.int64, device="meta") for _ in range(index.dim())
            )
        else:
            expanded.append(torch.empty(index.shape, dtype=torch.int64, device="meta"))
    meta = torch.empty(source.shape, dtype=source.dtype, device="meta")
    result = torch.ops.aten.index.Tensor(meta, expanded)
    return [(tuple(result.shape), source.dtype)]


def _unique(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size]:
    source = args[0]
    count = source.numel()
    return [((count,), source.dtype), (tuple(source.shape), torch.int64), ((count,), torch.int64)]


def _bincount(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size]:
    minlength = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    return [((max(minlength, 1),), torch.int64 if weights is None else torch.float64)]


def _repeat_interleave(args: Args, kwargs: Kwargs, choices: Choices) -> list[Size]:
    size = kwargs.get("output_size")
    return [((args[0].numel() if size is None else size,), torch.int64)]


_SIZES: dict[str, Callable[[Args, Kwargs, Choices], list[Size] | None]] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::masked_scatter_backward": lambda args, kwargs, choices: [
        (tuple(args[2]), args[0].dtype)
    ],
    "aten::index": _index,
    "aten::_unique2": _unique,
    "aten::unique_consecutive": _unique,
    "aten::bincount": _bincount,
    "aten::repeat_interleave": _repeat_interleave,
}
