"""How much real data an emulated device may hold, and what happens beyond that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import torch

from harness.errors import UsageError

AUTO_LIMIT_BYTES = 256 << 20
"""Up to this much data on the device, a step with real values takes seconds on a laptop."""

PRODUCTS = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2)}
"""Op -> its two factors. Logits and attention scores are where a step outgrows its inputs."""


@dataclass(frozen=True)
class ValuesLimit:
    """Bytes of real data, and what to do about an op that would hold more."""

    num_bytes: int
    beyond: Literal["shapes", "fail"]
    """`shapes`: go on with shapes only. `fail`: raise `UsageError`."""

    @classmethod
    def for_mode(cls, mode: Literal["auto", "values", "shapes"]) -> ValuesLimit | None:
        """The limit of an audit in this mode; `None` where no data is held anyway."""
        if mode == "shapes":
            return None
        if mode == "auto":
            return cls(AUTO_LIMIT_BYTES, "shapes")
        return cls(_host_memory_bytes(), "fail")

    def refuse(self, needed_bytes: int) -> UsageError:
        """The error for a step that needs more than there is."""
        return UsageError(
            f"The step holds at least {needed_bytes / 1e9:.1f} GB on the device, and this machine "
            f"has {self.num_bytes / 1e9:.1f} GB of memory for real values; audit shapes only "
            "(--shapes)."
        )


def bytes_to_come(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes that a factory, a copy to the device or a matrix product is about to allocate."""
    if op in PRODUCTS:
        left, right = (args[place] for place in PRODUCTS[op])
        size: int = left.shape[:-1].numel() * right.shape[-1] * left.element_size()
        return size
    first = args[0] if args else None
    if isinstance(first, torch.Tensor):
        return first.numel() * first.element_size()
    if isinstance(first, list | tuple) and all(isinstance(length, int) for length in first):
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return torch.Size(first).numel() * dtype.itemsize
    return 0


def _host_memory_bytes() -> int:
    """Memory that is free for use now, or all there is where the system does not say."""
    try:
        import psutil
    except ImportError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(psutil.virtual_memory().available)
