"""Names for what the host hands to an op: numbers among the arguments, and host tensors.

Only observers of every op need it; a value numbering tells equal constants by it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from harness.emulator.tensors.op_events import HostData
from harness.emulator.tensors.tensor import EmulatedTensor

_LARGEST_HASHED_BYTES = 1 << 20
"""Host data up to this size is equal where its bytes are."""

_numbers = itertools.count(1)


def host_data(tensor: torch.Tensor) -> HostData:
    """The host tensor as an upload sees it."""
    storage = host_number(tensor)
    return HostData(storage, _digest(tensor, storage), tensor.dtype.is_floating_point, tensor.dim())


def constants_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Equal where the floating numbers and host tensors among the arguments are equal.

    Integers and flags are in an op's signature already.
    """
    found: list[object] = []
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return hash(tuple(found)) if found else 0


def _collect(values: Any, found: list[object]) -> None:
    for value in values:
        kind = type(value)
        if kind is float:
            found.append(value)
        elif kind is list or kind is tuple:
            _collect(value, found)
        elif kind is not EmulatedTensor and isinstance(value, torch.Tensor):
            found.append(_digest(value, host_number(value)))


def host_number(tensor: torch.Tensor) -> int:
    """Number of a host storage: its own for as long as it lives, never used again."""
    # The Python object of a storage lives as long as the storage, so that the number does too.
    storage = tensor.untyped_storage()
    number: int | None = getattr(storage, "_gapless_number", None)
    if number is None:
        number = storage._gapless_number = next(_numbers)  # type: ignore[attr-defined]
    return number


def _digest(tensor: torch.Tensor, storage: int) -> int:
    num_bytes = tensor.numel() * tensor.element_size()
    if num_bytes > _LARGEST_HASHED_BYTES or tensor.layout is not torch.strided or tensor.is_meta:
        return hash(("host storage", storage, tensor._version, tensor.storage_offset()))
    data = tensor.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
    return hash((tensor.dtype, tuple(tensor.shape), data.numpy().tobytes()))
