"""What data is when only shapes are known: a stated policy, drawn from one seed.

- A value that came from floats reads as 1.0 (float), 0 (integer), False (bool).
- Checks pass: `all()` is True, `any()` is False, `equal` and `allclose` are True; nothing
  overflows, so `found_inf` stays 0.
- Choices among n (router `topk`, `argmax`, `sort`, `multinomial`) are drawn without replacement,
  uniformly or skewed (weights falling as 1/rank over a fixed random order).
- A mask out of floats selects half of its elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

Routing = Literal["uniform", "skewed"]

_LARGEST_HOST_COPY = 1 << 20
"""Elements up to which a copy of unknown data gets memory of its own on the host."""


class Choices:
    """Draws the data that shapes alone do not determine."""

    def __init__(self, seed: int = 0, routing: Routing = "uniform") -> None:
        self.seed = seed
        self.routing = routing
        self._generator = torch.Generator().manual_seed(seed)
        self._weights: dict[int, torch.Tensor] = {}

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
        return expanded.clone() if expanded.numel() <= _LARGEST_HOST_COPY else expanded

    def pick(self, shape: Sequence[int], dim: int, num_classes: int) -> torch.Tensor:
        """Indices along `dim` into `num_classes` classes, distinct where there are enough.

        `shape` is the shape of the result; returns int64 of that shape.
        """
        dim = dim % max(len(shape), 1)
        num_picks = shape[dim] if shape else 1
        rows = 1
        for position, length in enumerate(shape):
            if position != dim:
                rows *= length
        if rows * num_classes > 1 << 25 or num_picks > num_classes:
            flat = torch.randint(num_classes, (rows, num_picks), generator=self._generator)
        else:
            noise = torch.rand((rows, num_classes), generator=self._generator)
            if self.routing == "skewed":
                # Exponential races: the k smallest of Exp(weight) are a weighted draw.
                noise = -noise.clamp_min(1e-12).log() / self._class_weights(num_classes)
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
        return torch.rand(tuple(shape), generator=self._generator) < 0.5

    def _class_weights(self, num_classes: int) -> torch.Tensor:
        weights = self._weights.get(num_classes)
        if weights is None:
            order = torch.randperm(num_classes, generator=self._generator)
            weights = 1.0 / (order + 1).float()
            self._weights[num_classes] = weights
        return weights
