"""The sizes of a model, by kind of field, as they are read back from what was built."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeGuard

from harness.errors import GaplessError
from scenarios.configuration import common_name, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

Size = int | float | str | bool | None

LAYERS, HEADS, KEY_VALUE_HEADS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads"
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "moe_top_k", "moe_topk", "top_k_experts")

_KINDS = {
    "vocabulary": r"vocab_size",
    "mlp": r"intermediate_size|ffn_dim|ffn_hidden_size|inner_dim|n_inner",
    "key-value heads": r"(key_value|kv)_heads$",
    "heads": r"attention_heads$",
    "head": r"head_dim$|^kv_channels$",
    "rank": r"_lora_rank$",
    "window": r"sliding_window$|^attention_chunk_size$|attention_window(_size)?$",
    "hidden": r"^hidden_size$",
}


def kind_of(name: str) -> str | None:
    """What sort of size the field of this common name holds, or `None` where it holds none."""
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name)), None)


def is_size(value: object) -> TypeGuard[int]:
    """Whether a field's value is a number of something."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def num_experts(config: PreTrainedConfig) -> int | None:
    """Experts of each layer that has some, or `None` for a dense model."""
    name = experts_field(config)
    return None if name is None else int(getattr(config, name))


def experts_field(config: PreTrainedConfig) -> str | None:
    """The field that holds the number of experts."""
    return next((name for name in EXPERTS if is_size(value_of(config, name))), None)


def experts_per_token(config: PreTrainedConfig) -> int | None:
    """Experts that each token visits."""
    found = (value_of(config, name) for name in EXPERTS_PER_TOKEN)
    return next((int(value) for value in found if is_size(value)), None)


def layer_types(config: PreTrainedConfig) -> tuple[str, ...]:
    """Kind of each layer, in the library's words; empty for a model without attention."""
    listed = value_of(config, "layer_types")
    if listed is not None:
        return tuple(map(str, listed))
    if not is_size(value_of(config, HEADS)):
        return ()
    windowed = is_size(value_of(config, "sliding_window"))
    return ("sliding_attention" if windowed else "full_attention",) * int(config.num_hidden_layers)


def pattern(types: tuple[str, ...]) -> str:
    """The shortest run of layers that repeats: `5 sliding_attention, 1 full_attention`."""
    lengths = range(1, len(types) + 1)
    period = next(
        (n for n in lengths if all(a == b for a, b in zip(types, types[n:], strict=False))), 0
    )
    runs = [(kind, len(list(run))) for kind, run in groupby(types[:period])]
    return runs[0][0] if len(runs) == 1 else ", ".join(f"{n} {kind}" for kind, n in runs)


def describe(config: PreTrainedConfig) -> dict[str, Size]:
    """Every size of a configuration as one flat mapping, for the record.

    What most models have bears the same name for all of them; other widths keep the library's.
    """
    heads, hidden = value_of(config, HEADS), value_of(config, "hidden_size")
    sizes: dict[str, Size] = {
        "model_type": config.model_type,
        "num_layers": config.num_hidden_layers,
        "hidden_size": hidden,
        "intermediate_size": value_of(config, "intermediate_size"),
        "num_heads": heads,
        "num_kv_heads": value_of(config, KEY_VALUE_HEADS) or heads,
        "head_dim": value_of(config, "head_dim")
        or (hidden // heads if is_size(heads) and is_size(hidden) else None),
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "num_experts": num_experts(config),
        "num_experts_per_token": experts_per_token(config) if num_experts(config) else None,
    }
    shown = {LAYERS, HEADS, KEY_VALUE_HEADS}
    for name, value in config.to_dict().items():
        name = common_name(config, name)
        if name not in sizes and name not in shown and kind_of(name) and is_size(value):
            sizes[name] = value
    types = layer_types(config)
    if set(types) - {"full_attention"}:
        sizes["layer_types"] = pattern(types)
    elif "sliding_window" in sizes:
        del sizes["sliding_window"]  # no layer looks back only so far
    return {name: value for name, value in sizes.items() if value is not None}


def describe_built(model: PreTrainedModel) -> dict[str, Size]:
    """`describe` of a built model's configuration, and how many of its layers have experts.

    Raises `GaplessError` where the model is not what its configuration says.
    """
    sizes = describe(model.config)
    _check(model, sizes)
    layers = sum(1 for _ in expert_modules(model))
    if sizes.get("num_experts") is not None and layers != sizes["num_layers"]:
        sizes["num_sparse_layers"] = layers
    return sizes


def expert_modules(model: PreTrainedModel) -> Iterator[nn.Module]:
    """The modules that hold one layer's experts, stacked or as a list of as many modules."""
    from torch import nn

    experts = num_experts(model.config)
    for module in model.modules():
        stacked = any(p.ndim == 3 and p.shape[0] == experts for p in module.parameters(False))
        listed = isinstance(module, nn.ModuleList) and len(module) == experts
        if experts is not None and (stacked or (listed and "xpert" in type(module[0]).__name__)):
            yield module


def check_asked(config: PreTrainedConfig, asked: Mapping[str, Any]) -> None:
    """Raise `GaplessError` where a built model's configuration is not what was asked for."""
    for name, value in asked.items():
        built = value_of(config, name)
        if built != value:
            raise GaplessError(
                f"The {config.model_type} model was asked for {name}={value} and was built with "
                f"{built}, so a record of it would be wrong; please report this configuration."
            )


def changed_sizes(
    real: Mapping[str, Size], as_run: Mapping[str, Size]
) -> dict[str, tuple[int, int]]:
    """Every integer size that differs: name -> (real, as run)."""
    return {
        name: (value, other)
        for name, value in real.items()
        if isinstance(value, int) and isinstance(other := as_run.get(name), int) and value != other
    }


def _check(model: PreTrainedModel, sizes: Mapping[str, Size]) -> None:
    head, words = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is words.weight
    found = {"vocab_size": words.weight.shape[0], "tie_word_embeddings": tied}
    if head is None:
        del found["tie_word_embeddings"]
    for name, value in found.items():
        if value != sizes[name]:
            raise GaplessError(
                f"The configuration of this {type(model).__name__} says {name}={sizes[name]}, and "
                f"the built model has {value}; please report this configuration."
            )
