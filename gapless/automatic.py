"""Which variant of each optimization a model should use, and why: the rules of automatic choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gapless.choice import Choice
from optimizations.checkpoint_reload import CheckpointReload
from optimizations.implementation_switch import model_device, pretrained_model
from optimizations.moe_experts import down_projection, expert_modules, grouped_obstacle
from optimizations.moe_routing import MoeRouting
from optimizations.packed_metadata import PackedMetadata

if TYPE_CHECKING:
    from torch import nn

    from optimizations.packed_metadata import PackedBackend

_SYNC_FREE_EXPERTS = {
    "batched_mm": "gathers each token's weights and reads nothing",
    "deepgemm": "groups on the device and reads nothing",
    "sonicmoe": "groups on the device and reads nothing",
}
_WORTH_MOVING_SHARE = 0.1
"""Of the free memory, from where checkpoint inputs are worth a place on the host."""


def automatic_choices(model: nn.Module, *, packed: bool, tokens: int | None) -> tuple[Choice, ...]:
    """One choice for each optimization. Raises `UsageError` for a model without parameters."""
    model_device(model)
    return (
        _packed_metadata(model, packed),
        _checkpoint_reload(model, tokens),
        _moe_routing(model),
    )


def packed_backend_of(model: nn.Module) -> PackedBackend:
    """The backend of packed attention: a varlen kernel where one runs this model on a GPU."""
    runs = model_device(model).type == "cuda"
    if runs and PackedMetadata("varlen").requires(model, "collator") is None:
        return "varlen"
    return "sdpa-mask"


def _packed_metadata(model: nn.Module, packed: bool) -> Choice:
    name = "packed-metadata"
    reason = PackedMetadata(packed_backend_of(model)).requires(model, "collator")
    if reason is not None:
        return Choice(name, None, reason)
    in_use = implementation_of(model, "_attn_implementation")
    if in_use == "flex_attention":
        return Choice(
            name, None,
            "flex_attention stays: its block mask is built once in a forward and no layer reads "
            "the device; to replace it by attention over packed_documents, ask for it by name",
        )  # fmt: skip
    if "flash" in in_use:
        return Choice(
            name, None,
            f"{in_use} takes the collator's cu_seq_lens and max_length as host data itself",
        )  # fmt: skip
    if not packed:
        return Choice(
            name, None,
            "the batches are not said to be packed; pass packed=True and give each model call "
            "packed_documents",
        )  # fmt: skip
    backend = packed_backend_of(model)
    return Choice(name, "collator", f"documents known on the host need no device read ({backend})")


def _checkpoint_reload(model: nn.Module, tokens: int | None) -> Choice:
    name = "checkpoint-reload"
    settings = CheckpointReload()
    reason = settings.requires(model, "prefetch")
    if reason is not None:
        return Choice(name, None, reason)
    layers = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False) is True]
    if not layers:
        return Choice(name, None, "the model does not checkpoint its layers")
    if model_device(model).type != "cuda":
        return Choice(name, None, "on the CPU inputs are in host memory already")
    if any(_saves_on_cpu(layer) for layer in layers):
        return Choice(name, "prefetch", "the model offloads already, on the compute stream")
    if tokens is None:
        return Choice(
            name, None,
            "it gains memory, never time; pass tokens= to weigh that, or ask for it by name",
        )  # fmt: skip
    return _by_size(model, tokens, len(layers))


def _by_size(model: nn.Module, tokens: int, num_layers: int) -> Choice:
    name = "checkpoint-reload"
    target: Any = pretrained_model(model)
    device = model_device(model)
    each = tokens * target.config.get_text_config().hidden_size * target.dtype.itemsize
    if not CheckpointReload().moves(torch.empty(each, dtype=torch.uint8, device="meta")):
        return Choice(name, None, f"an input of {each / 2**20:.1f} MiB is too small to move")
    free_bytes, _ = torch.cuda.mem_get_info(device)
    held = each * num_layers
    if held < _WORTH_MOVING_SHARE * free_bytes:
        return Choice(
            name, None,
            f"its {held / 1e9:.1f} GB of inputs fit in {free_bytes / 1e9:.0f} GB of free memory, "
            "and moving them gains no time",
        )  # fmt: skip
    return Choice(
        name, "prefetch",
        f"{held / 1e9:.1f} GB of inputs press on {free_bytes / 1e9:.0f} GB of free memory",
    )  # fmt: skip


def _saves_on_cpu(layer: nn.Module) -> bool:
    """Whether transformers was asked to offload what this layer's checkpoint saves."""
    function = getattr(layer, "_gradient_checkpointing_func", None)
    inner = getattr(function, "func", function)
    code = getattr(inner, "__code__", None)
    return code is not None and "save_on_cpu" in code.co_names + code.co_freevars


def _moe_routing(model: nn.Module) -> Choice:
    name = "moe-routing"
    reason = MoeRouting().requires(model, "device-offsets")
    if reason is not None:
        return Choice(name, None, reason)
    target: Any = pretrained_model(model)
    experts = next(expert_modules(target))
    weight = down_projection(experts).weight
    if weight.dim() != 3 or not weight.dtype.is_floating_point:
        return Choice(name, None, "the expert weights are quantised; their own code must run them")
    in_use = implementation_of(model, "_experts_implementation")
    if in_use in _SYNC_FREE_EXPERTS:
        return Choice(name, None, f"{in_use} {_SYNC_FREE_EXPERTS[in_use]}")
    if in_use == "grouped_mm":
        return Choice(name, None, "grouped_mm groups on the device, with no read per expert")
    if in_use != "eager":
        return Choice(name, None, f"{in_use} is not known here; it is left alone")
    obstacle = grouped_obstacle(experts)
    how = "and grouped matmuls" if obstacle is None else f"and one read per layer ({obstacle})"
    return Choice(
        name, "device-offsets", f"eager experts read once and more per expert: one sort {how}"
    )


def implementation_of(model: nn.Module, attribute: str) -> str:
    """The name that the model's configuration holds under `attribute`, `eager` where none."""
    target: Any = pretrained_model(model)
    return getattr(target.config.get_text_config(), attribute, None) or "eager"
