"""What a step changes, kept and put back: weights, buffers, optimizer state, random numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.workload import HasOptimizer

if TYPE_CHECKING:
    from torch import nn

    from harness.workload import Workload

_NUMPY_SEEDS = 2**32


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch, every device included: the next step draws the same numbers
    whichever arm runs it."""
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)
    torch.manual_seed(seed)


def snapshot_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the model's buffers, on their devices; they are small beside the weights."""
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


@torch.no_grad()
def restore_buffers(model: nn.Module, kept: dict[str, torch.Tensor]) -> None:
    """Put the values back in place."""
    for name, buffer in model.named_buffers():
        if name in kept:
            buffer.copy_(kept[name])


class TrainingState:
    """A copy in host memory of all that a training step changes.

    That is the trainable parameters, the buffers and, where the workload exposes its optimizer, the
    optimizer's state. A frozen base model is not copied, so with an adapter this is small.
    """

    def __init__(self, workload: Workload) -> None:
        model = workload.model
        self._optimizer = workload.optimizer if isinstance(workload, HasOptimizer) else None
        self._parameters = [
            (parameter, _to_host(parameter))
            for parameter in model.parameters()
            if parameter.requires_grad
        ]
        self._buffers = [(buffer, _to_host(buffer)) for buffer in model.buffers()]
        self._optimizer_state = [
            (parameter, {key: _kept(value) for key, value in entries.items()})
            for parameter, entries in self._entries().items()
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put every value back in place; optimizer state made since then is removed."""
        for tensor, kept in self._parameters + self._buffers:
            tensor.copy_(kept)
        kept_parameters = {id(parameter) for parameter, _ in self._optimizer_state}
        state = self._entries()
        for parameter in [parameter for parameter in state if id(parameter) not in kept_parameters]:
            del state[parameter]
        for parameter, entries in self._optimizer_state:
            now = state.setdefault(parameter, {})
            for key, value in entries.items():
                present = now.get(key)
                if isinstance(value, torch.Tensor) and isinstance(present, torch.Tensor):
                    present.copy_(value)
                else:
                    now[key] = value

    def _entries(self) -> dict[torch.Tensor, dict[str, object]]:
        return {} if self._optimizer is None else self._optimizer.state


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _kept(value: object) -> object:
    return _to_host(value) if isinstance(value, torch.Tensor) else value
