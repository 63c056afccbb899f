"""A gradient norm that reads the device once per parameter, as optimizers of public trainers did.

Reported for DeepSpeed (deepspeedai/DeepSpeed#4436): `total += p.grad.norm().item() ** 2` in a loop
over the parameters makes the host wait as often as there are parameters.

    gapless audit examples/optimizer_reads.py:build_before
    gapless audit examples/optimizer_reads.py:build_after
    python examples/optimizer_reads.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cuda"
WIDTH, LAYERS, TOKENS, LARGEST_NORM = 32, 24, 16, 1.0


def clip_before(parameters: list[nn.Parameter]) -> torch.Tensor:
    total = 0.0
    for p in parameters:
        total += p.grad.norm().item() ** 2
    norm = total**0.5
    if norm > LARGEST_NORM:
        for p in parameters:
            p.grad.mul_(LARGEST_NORM / norm)
    return torch.tensor(norm)


def clip_after(parameters: list[nn.Parameter]) -> torch.Tensor:
    gradients = [p.grad for p in parameters]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (LARGEST_NORM / norm).clamp(max=1.0))
    return norm


def build(
    device: str, clip: Callable[[list[nn.Parameter]], torch.Tensor]
) -> Callable[[], torch.Tensor]:
    """A training step that returns the gradient norm before clipping."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).to(device)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    x = torch.randn(TOKENS, WIDTH).to(device)

    def step() -> torch.Tensor:
        (model(x).square().mean() * 1e3).backward()
        norm = clip(parameters)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    return step


def build_before() -> Callable[[], torch.Tensor]:
    return build(DEVICE, clip_before)


def build_after() -> Callable[[], torch.Tensor]:
    return build(DEVICE, clip_after)


if __name__ == "__main__":
    from comparing import show

    show(lambda device: build(device, clip_before), lambda device: build(device, clip_after))
