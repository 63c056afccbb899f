"""A cheap transformers model whose layers take and give everything a checkpoint must handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 6


class StackConfig(PreTrainedConfig):
    model_type = "checkpoint-stack"


class StackLayer(GradientCheckpointingLayer):
    """Saves its input for backward three times over: norm, gate and product."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.25)
        self.probe: Callable[[int, torch.Tensor], None] | None = None
        """Called with the layer's index and input, in forward and in the recompute."""

    def forward(
        self,
        hidden: Any,
        extra: torch.Tensor | None = None,
        *,
        scale: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        if self.probe is not None:
            self.probe(self.index, hidden)
        mixed = self.dropout(torch.tanh(self.mix(self.norm(hidden))))
        if extra is not None:
            mixed = mixed + extra * hidden
        if scale is not None:
            mixed = mixed * scale
        return hidden + mixed * torch.sigmoid(hidden), mixed


class Stack(PreTrainedModel):
    """`num_layers` layers in double precision; `call` says how a layer is called."""

    config_class = StackConfig
    supports_gradient_checkpointing = True
    all_tied_weights_keys: dict[str, str] = {}  # noqa: RUF012  # transformers reads it on the class

    def __init__(self, num_layers: int) -> None:
        super().__init__(StackConfig())
        self.layers = nn.ModuleList(StackLayer(index) for index in range(num_layers))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.gradient_checkpointing = False
        self.call: Callable[[StackLayer, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = (
            lambda layer, hidden: layer(hidden)
        )
        self.double()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        side = hidden.new_zeros(())
        for layer in self.layers:
            hidden, mixed = self.call(layer, hidden)
            side = side + mixed.square().mean()
        return hidden.square().mean() + side


def make_stack(num_layers: int = 5) -> Stack:
    """The same weights on every call."""
    torch.manual_seed(0)
    return Stack(num_layers).train()


def rows(num_rows: int, seed: int = 0) -> torch.Tensor:
    """Inputs, `float64[num_rows, WIDTH]`; the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, WIDTH, generator=generator, dtype=torch.float64)


def step(model: nn.Module, *inputs: torch.Tensor, seed: int = 7) -> dict[str, torch.Tensor]:
    """Loss and gradients of one backward over the sum of the losses, with the RNG set."""
    torch.manual_seed(seed)
    loss = torch.stack([model(hidden) for hidden in inputs]).sum()
    loss.backward()
    return {"loss": loss.detach(), **take_gradients(model)}


def take_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """The gradients of the parameters that have one, taken off the model."""
    taken = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return taken


def assert_same_bits(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), f"{name} differs"
