"""Whether moving checkpoint inputs to the host is worth it for a model: the automatic choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from harness.workload import Choice
from optimizations.implementation_switch import model_device, pretrained_model

if TYPE_CHECKING:
    from torch import nn

_WORTH_MOVING_SHARE = 0.1
"""Of the free memory, from where checkpoint inputs are worth a place on the host."""


class Reload(Protocol):
    """The optimization that asks."""

    @property
    def name(self) -> str: ...

    def requires(self, model: nn.Module, variant: str) -> str | None: ...

    def moves(self, value: object) -> bool: ...


def reload_choice(reload: Reload, model: nn.Module, tokens: int | None) -> Choice:
    """`prefetch` where the model offloads already or its inputs press on the free memory."""
    reason = reload.requires(model, "prefetch")
    if reason is not None:
        return Choice(reload.name, None, reason)
    layers = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False) is True]
    if not layers:
        return Choice(reload.name, None, "the model does not checkpoint its layers")
    if model_device(model).type != "cuda":
        return Choice(reload.name, None, "on the CPU inputs are in host memory already")
    if any(_saves_on_cpu(layer) for layer in layers):
        return Choice(reload.name, "prefetch", "the model offloads already, on the compute stream")
    if tokens is None:
        return Choice(
            reload.name, None,
            "it gains memory, never time; pass tokens= to weigh that, or ask for it by name",
        )  # fmt: skip
    return _by_size(reload, model, tokens, len(layers))


def _by_size(reload: Reload, model: nn.Module, tokens: int, num_layers: int) -> Choice:
    target: Any = pretrained_model(model)
    device = model_device(model)
    each = tokens * target.config.get_text_config().hidden_size * target.dtype.itemsize
    if not reload.moves(torch.empty(each, dtype=torch.uint8, device="meta")):
        why = f"an input of {each / 2**20:.1f} MiB is too small to move"
        return Choice(reload.name, None, why)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    held = each * num_layers
    if held < _WORTH_MOVING_SHARE * free_bytes:
        return Choice(
            reload.name, None,
            f"its {held / 1e9:.1f} GB of inputs fit in {free_bytes / 1e9:.0f} GB of free memory, "
            "and moving them gains no time",
        )  # fmt: skip
    return Choice(
        reload.name, "prefetch",
        f"{held / 1e9:.1f} GB of inputs press on {free_bytes / 1e9:.0f} GB of free memory",
    )  # fmt: skip


def _saves_on_cpu(layer: nn.Module) -> bool:
    """Whether transformers was asked to offload what this layer's checkpoint saves."""
    function = getattr(layer, "_gradient_checkpointing_func", None)
    inner = getattr(function, "func", function)
    code = getattr(inner, "__code__", None)
    return code is not None and "save_on_cpu" in code.co_names + code.co_freevars
