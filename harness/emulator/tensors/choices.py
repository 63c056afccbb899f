"""What data is when only shapes are known: a stated policy, drawn from one seed.

- A value that came from floats reads as 1.0 (float), 0 (integer), False (bool).
- Checks pass: `all()` is True, `any()` is False, `equal` and `allclose` are True; nothing
  overflows, so `found_inf` stays 0.
- Draws are a function of the seed and the shapes, so that recompute draws what forward drew, and
  every layer routes alike.
- Choices among n (router `topk`, `argmax`, `sort`, `multinomial`) are drawn without replacement,
  uniformly or skewed (weights falling as 1/rank over a fixed random order).
- A mask out of floats selects half of its elements.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Routing = Literal["uniform", "skewed"]

LARGEST_HOST_COPY = 1 << 20
"""Elements up to which a copy of unknown data gets memory of its own on the host."""


class Choices:
    """Draws the data that shapes alone do not determine."""

    def __init__(self, seed: int = 0, routing: Routing = "uniform") -> None:
        self.seed = seed
        self.routing = routing
        self._drawn: dict[tuple[object, ...], torch.Tensor] = {}

    def describe(self) -> str:
        """One sentence for the report."""
        return (
            f"Data that would come out of floats is drawn with seed {self.seed}: {self.routing} "
            "routing, no overflow, checks pass, masks out of floats select half."
        )

    def scalar(self, dtype: torch.dtype) -> float | int | bool | complex:
        """What reading one unknown element gives."""
        if dtype is torch.bool:
            return False
        if dtype.is_complex:
            return complex(1.0)
        return 1.0 if dtype.is_floating_point else 0

    def host_tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What copying unknown data to the host gives; large ones share a single element."""
        fill = torch.tensor(self.scalar(dtype), dtype=dtype)
        expanded = fill.expand(tuple(shape))
        return expanded.clone() if expanded.numel() <= LARGEST_HOST_COPY else expanded

    def pick(self, shape: Sequence[int], dim: int, num_classes: int) -> torch.Tensor:
        """Indices along `dim` into `num_classes` classes, distinct where there are enough.

        `shape` is the shape of the result; returns int64 of that shape.
        """
        key = ("pick", tuple(shape), dim, num_classes)
        return self._once(key, lambda g: self._pick(g, shape, dim, num_classes))

    def _pick(
        self, generator: torch.Generator, shape: Sequence[int], dim: int, num_classes: int
    ) -> torch.Tensor:
        dim = dim % max(len(shape), 1)
        num_picks = shape[dim] if shape else 1
        rows = 1
        for position, length in enumerate(shape):
            if position != dim:
                rows *= length
        if rows * num_classes > 1 << 25 or num_picks > num_classes:
            flat = torch.randint(num_classes, (rows, num_picks), generator=generator)
        else:
            noise = torch.rand((rows, num_classes), generator=generator)
            if self.routing == "skewed":
                # Exponential races: the k smallest of Exp(weight) are a weighted draw.
                ranks = torch.randperm(num_classes, generator=generator) + 1
                noise = -noise.clamp_min(1e-12).log() * ranks
            flat = noise.topk(num_picks, dim=1, largest=False, sorted=False).indices
        if not shape:
            return flat.reshape(())
        others = [length for position, length in enumerate(shape) if position != dim]
        return flat.reshape([*others, num_picks]).movedim(-1, dim).contiguous()

    def permutation(self, shape: Sequence[int], dim: int) -> torch.Tensor:
        """Indices that sort unknown data along `dim`: a random order in each row."""
        return self.pick(shape, dim, shape[dim % max(len(shape), 1)] if shape else 1)

    def mask(self, shape: Sequence[int]) -> torch.Tensor:
        """A mask out of floats: True for about half."""
        return self._once(
            ("mask", tuple(shape)), lambda g: torch.rand(tuple(shape), generator=g) < 0.5
        )

    def _once(
        self, key: tuple[object, ...], draw: Callable[[torch.Generator], torch.Tensor]
    ) -> torch.Tensor:
        """A copy of what was drawn for this key."""
        drawn = self._drawn.get(key)
        if drawn is None:
            generator = torch.Generator().manual_seed(zlib.crc32(repr((self.seed, key)).encode()))
            drawn = self._drawn[key] = draw(generator)
        return drawn.clone()
