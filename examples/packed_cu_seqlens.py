"""Packed attention that reads document boundaries from the device in every layer.

Reported for transformers (huggingface/transformers#32318, #39213): each layer slices by bounds that
live on the device, and each bound costs a sync. The bounds are the same in every layer.

    gapless audit examples/packed_cu_seqlens.py:build_before
    gapless audit examples/packed_cu_seqlens.py:build_after
    python examples/packed_cu_seqlens.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEVICE = "cuda"
WIDTH, LAYERS = 32, 8
LENGTHS = (3, 9, 4, 16, 5, 11)


class Block(nn.Module):
    """Attention within each document of one packed row."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, WIDTH)

    def forward(self, h: torch.Tensor, cu: torch.Tensor | Sequence[int]) -> torch.Tensor:
        documents = []
        for i in range(1, len(cu)):
            part = self.qkv(h[cu[i - 1] : cu[i]])[None, None]
            documents.append(F.scaled_dot_product_attention(part, part, part)[0, 0])
        return h + torch.cat(documents)


def build(device: str, *, on_host: bool) -> Callable[[], torch.Tensor]:
    """A training step that returns its loss; `on_host` reads the bounds once, before the layers."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    h = torch.randn(sum(LENGTHS), WIDTH).to(device)
    cu = torch.tensor([0, *LENGTHS]).cumsum(0).to(device)

    def step() -> torch.Tensor:
        bounds = cu.tolist() if on_host else cu
        x = h
        for block in blocks:
            x = block(x, bounds)
        loss = x.square().mean()
        loss.backward()
        blocks.zero_grad()
        return loss.detach()

    return step


def build_before() -> Callable[[], torch.Tensor]:
    return build(DEVICE, on_host=False)


def build_after() -> Callable[[], torch.Tensor]:
    return build(DEVICE, on_host=True)


if __name__ == "__main__":
    from comparing import show

    show(lambda device: build(device, on_host=False), lambda device: build(device, on_host=True))
