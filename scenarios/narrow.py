"""How `--fit narrow` shrinks a model: rules over kinds of field, the same on every machine.

What coordination depends on stays as published: layers, experts, experts per token, query heads
per key-value head, the pattern of windows, documents in a row, checkpointing. Only widths shrink:
hidden size, MLP, heads, head size, ranks, vocabulary, tokens, and the window in step with the
tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from scenarios.configuration import common_name, declared, real_name, settable, value_of
from scenarios.sizes import (
    HEADS,
    KEY_VALUE_HEADS,
    LAYERS,
    experts_field,
    experts_per_token,
    is_size,
    kind_of,
    num_experts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedConfig

    from scenarios.build_options import Purpose


_HIDDEN_TOO = re.compile(r"(_dim|_size|_width|^d_model)$")
"""Fields that repeat the hidden size under another name, where their value is the same."""

_QK_PARTS = ("qk_nope_head_dim", "qk_rope_head_dim")


@dataclass(frozen=True, kw_only=True)
class Widths:
    """What one narrow build uses in place of the published widths, where those are larger."""

    tokens: int
    documents: int
    hidden: int = 64
    mlp: int = 128
    head: int = 16
    rank: int = 16
    vocabulary: int = 512
    """Holds all bytes and the special tokens, so byte tokens need no folding."""
    window: int = 16
    """Half a mean document, so that windows still cut documents short."""


def widths_for(config: PreTrainedConfig, purpose: Purpose) -> Widths:
    """The narrow widths of a published model, for a step of 0.2 to 0.6 s on two cores.

    Attention over T x T takes most of a narrow CPU step, so tokens fall as layers x heads rise;
    with experts their number takes most, and widths fall too.
    """
    if purpose == "activations":
        # A layer input is tokens x hidden. Widening it costs linear time and more tokens quadratic,
        # so the copy's share of the step is largest with few tokens and a wide hidden size.
        return Widths(tokens=256, documents=8, hidden=1024, mlp=32)
    layers, experts = config.num_hidden_layers, num_experts(config)
    if experts is not None:
        many = Widths(tokens=256, documents=8, mlp=32)
        few = replace(many, hidden=32, mlp=16)
        return _first_up_to(
            layers * experts,
            {1024: many, 5000: replace(few, tokens=192), 8000: replace(few, tokens=128)},
            replace(few, tokens=64),
        )
    return _first_up_to(
        layers * _heads(config)[0],
        {128: Widths(tokens=1024, documents=32), 256: Widths(tokens=512, documents=24)},
        Widths(tokens=256, documents=16),
    )


def narrow(facts: Mapping[str, Any], config: PreTrainedConfig, widths: Widths) -> dict[str, Any]:
    """The fields that `widths` change: name -> value. `config` is the library's of `facts`."""
    fields = {name: value for name, value in settable(facts, config) if is_size(value)}
    num_heads, num_kv_heads = _heads(config)
    real_head, real_hidden = head_size(config), int(config.hidden_size)
    head, hidden = min(widths.head, real_head), min(widths.hidden, real_hidden)
    if "head_dim" in declared(config):
        fields["head_dim"] = real_head
    if not any(kind_of(name) == "head" for name in fields):
        # Here the heads share the hidden size, and rotary embeddings turn pairs of it.
        groups = min(_real_groups(config), max(1, hidden // (num_heads * head)))
        num_heads, num_kv_heads = groups * num_heads, groups * num_kv_heads
        hidden = -(-hidden // (2 * num_heads)) * 2 * num_heads
        head = hidden // num_heads
    of_kind = {
        "vocabulary": widths.vocabulary,
        "hidden": hidden,
        "mlp": widths.mlp,
        "heads": num_heads,
        "key-value heads": num_kv_heads,
        "head": widths.head,
        "rank": widths.rank,
        "window": widths.window,
    }
    changes: dict[str, Any] = {}
    for name, value in fields.items():
        common = common_name(config, name)
        if name == "qk_head_dim" and fields.keys() >= set(_QK_PARTS):
            changes[name] = sum(min(fields[part], widths.head) for part in _QK_PARTS)
        elif (kind := kind_of(common)) is not None:
            changes[name] = min(value, of_kind[kind])
        elif value == real_hidden and _HIDDEN_TOO.search(common):
            changes[name] = hidden
        elif value == real_head and common == "query_pre_attn_scalar":
            changes[name] = head
        elif common == "rotary_dim":
            changes[name] = _even(value * head / real_head)
        elif common.endswith("_token_id"):
            # Special tokens are folded into the vocabulary, as all others are.
            changes[name] = value % widths.vocabulary
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(facts.get(name), dict):
            changes[name] = _rope(facts[name], real_head // 2, head // 2)
    return changes


def resize(
    facts: Mapping[str, Any],
    config: PreTrainedConfig,
    *,
    layers: int | None,
    experts: int | None,
    hidden_size: int | None,
) -> dict[str, Any]:
    """The fields that give the model as many layers and experts, or that hidden size.

    Fewer layers are the first ones, more repeat their pattern. Raises `UsageError` for experts of
    a dense model, or fewer than a token visits.
    """
    changes: dict[str, Any] = {} if hidden_size is None else {"hidden_size": hidden_size}
    if experts is not None:
        changes |= _experts(config, experts)
    if layers is None:
        return changes
    real = config.num_hidden_layers
    changes[real_name(config, LAYERS)] = layers
    for name, value in settable(facts, config):
        if name not in facts or not isinstance(value, list):
            continue
        if len(value) == real:
            changes[name] = [value[layer % real] for layer in range(layers)]
        elif "layer" in name and all(isinstance(layer, int) for layer in value):
            changes[name] = [layer for layer in value if layer < layers]
    dense = value_of(config, "first_k_dense_replace")
    if is_size(dense) and layers <= dense < real:
        # A model with experts keeps a layer that has some.
        changes["first_k_dense_replace"] = layers - 1
    return changes


def head_size(config: PreTrainedConfig) -> int:
    """Width of one head, which some configurations leave to the hidden size."""
    stated = value_of(config, "head_dim")
    return int(stated or config.hidden_size // (value_of(config, HEADS) or 1))


def _heads(config: PreTrainedConfig) -> tuple[int, int]:
    """Query and key-value heads with one key-value head for each group of query heads."""
    heads = value_of(config, HEADS) or 1
    pairs = value_of(config, KEY_VALUE_HEADS) or heads
    return (heads // pairs, 1) if heads % pairs == 0 else (heads, pairs)


def _real_groups(config: PreTrainedConfig) -> int:
    heads = value_of(config, HEADS) or 1
    return int(heads // _heads(config)[0])


def _experts(config: PreTrainedConfig, number: int) -> dict[str, Any]:
    field, chosen = experts_field(config), experts_per_token(config) or 1
    if field is None:
        raise UsageError("num_experts is for models with experts, and this one is dense.")
    if number < chosen:
        raise UsageError(f"num_experts={number} is less than the {chosen} a token visits.")
    groups = value_of(config, "n_group") or 1
    if groups == 1 or (number % groups == 0 and number >= 2 * groups):
        return {field: number}
    # The router picks the two best of each group; so few experts are one group.
    return {field: number, "n_group": 1, "topk_group": 1}


def _rope(parameters: Mapping[str, Any], real_half: int, half: int) -> dict[str, Any]:
    """Rotary parameters with the lists that have an entry, or a section, for pairs of a head."""
    real_half, half = (
        int(pairs * parameters.get("partial_rotary_factor", 1.0)) for pairs in (real_half, half)
    )

    def fitted(value: Any) -> Any:
        if isinstance(value, dict):
            return _rope(value, real_half, half)
        if isinstance(value, list) and len(value) == real_half:
            return value[:half]
        if isinstance(value, list) and sum(value) == real_half:
            sections = [part * half // real_half for part in value]
            return [half - sum(sections[1:]), *sections[1:]]
        return value

    return {name: fitted(value) for name, value in parameters.items()}


def _even(value: float) -> int:
    return max(2, round(value / 2) * 2)


def _first_up_to(cost: int, tiers: Mapping[int, Widths], beyond: Widths) -> Widths:
    return next((widths for limit, widths in tiers.items() if cost <= limit), beyond)
