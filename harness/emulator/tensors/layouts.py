"""Numbers for tensor layouts, so that layouts are compared and remembered by one integer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.emulator.tensors.tensor import EmulatedTensor

Layout = tuple[Any, ...]
"""(shape, strides, offset in elements, dtype)."""


class LayoutTable:
    """The layouts that one device has met. Equal numbers mean equal layouts."""

    def __init__(self) -> None:
        self._numbers: dict[Layout, int] = {}
        self._layouts: list[Layout] = []
        self.num_bytes: list[int] = []
        """Number -> bytes of a tensor of this layout, gaps between its elements left out."""

    def number(self, layout: Layout) -> int:
        """The number of a layout, a new one for a new layout."""
        number = self._numbers.get(layout)
        if number is None:
            number = self._numbers[layout] = len(self._layouts)
            self._layouts.append(layout)
            self.num_bytes.append(math.prod(layout[0]) * layout[3].itemsize)
        return number

    def of(self, tensor: EmulatedTensor) -> int:
        """The number of the tensor's layout, which the tensor keeps."""
        number = tensor.layout_number
        if number < 0:
            number = tensor.layout_number = self.number(
                (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
            )
        return number

    def byte_range(self, number: int) -> tuple[int, int]:
        """First byte of the storage that a tensor of this layout touches, and one past the last."""
        shape, strides, offset, dtype = self._layouts[number]
        if 0 in shape:
            return 0, 0
        last = sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
        return offset * dtype.itemsize, (offset + last + 1) * dtype.itemsize
