"""Published model configurations as data, and the library config made from them.

Sizes are those of the `config.json` that ships with each model. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedConfig

ModelType = Literal["qwen3", "llama", "gpt_oss", "qwen3_moe"]
RopeValue = float | int | bool | str


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """Everything that fixes the shape of one decoder-only model."""

    model_type: ModelType
    """The library's name of the architecture."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    """Width of the dense MLP; for GPT-OSS that of one expert, as its config has it."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rope: Mapping[str, RopeValue] = field(hash=False)
    """`rope_parameters` of the library config."""
    rms_norm_eps: float
    tie_word_embeddings: bool
    num_experts: int | None = None
    num_experts_per_token: int | None = None
    moe_intermediate_size: int | None = None
    """Width of one expert where the config names it apart from `intermediate_size`."""
    sliding_window: int | None = None
    """Tokens a sliding layer looks back; layers alternate sliding, full, sliding, ..."""

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Attention kind of each layer, in the library's words."""
        if self.sliding_window is None:
            return ("full_attention",) * self.num_layers
        pattern = ("sliding_attention", "full_attention")
        return tuple(pattern[layer % 2] for layer in range(self.num_layers))

    def describe(self) -> dict[str, int | float | str | bool | None]:
        """The sizes as one flat mapping, for the record."""
        sizes: dict[str, int | float | str | bool | None] = {
            "model_type": self.model_type,
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
        optional = {
            "num_experts": self.num_experts,
            "num_experts_per_token": self.num_experts_per_token,
            "moe_intermediate_size": self.moe_intermediate_size,
            "sliding_window": self.sliding_window,
        }
        sizes.update({name: value for name, value in optional.items() if value is not None})
        return sizes


def _rope(**parameters: RopeValue) -> Mapping[str, RopeValue]:
    return MappingProxyType(parameters)


def _qwen3(
    *, layers: int, hidden: int, intermediate: int, heads: int, tied: bool = False
) -> ModelSizes:
    """A dense Qwen3: what all sizes share is written once."""
    return ModelSizes(
        model_type="qwen3",
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151_936,
        max_positions=40_960,
        rope=_rope(rope_type="default", rope_theta=1_000_000.0),
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
    )


def _gpt_oss(*, layers: int, experts: int) -> ModelSizes:
    """A GPT-OSS: the two sizes differ in layers and experts only."""
    return ModelSizes(
        model_type="gpt_oss",
        num_layers=layers,
        hidden_size=2880,
        intermediate_size=2880,
        num_heads=64,
        num_kv_heads=8,
        head_dim=64,
        vocab_size=201_088,
        max_positions=131_072,
        rope=_rope(
            rope_type="yarn",
            rope_theta=150_000.0,
            factor=32.0,
            beta_fast=32.0,
            beta_slow=1.0,
            truncate=False,
            original_max_position_embeddings=4096,
        ),
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        num_experts=experts,
        num_experts_per_token=4,
        sliding_window=128,
    )


QWEN3_0_6B = _qwen3(layers=28, hidden=1024, intermediate=3072, heads=16, tied=True)
QWEN3_8B = _qwen3(layers=36, hidden=4096, intermediate=12_288, heads=32)
QWEN3_14B = _qwen3(layers=40, hidden=5120, intermediate=17_408, heads=40)
QWEN3_32B = _qwen3(layers=64, hidden=5120, intermediate=25_600, heads=64)

LLAMA_3_2_1B = ModelSizes(
    model_type="llama",
    num_layers=16,
    hidden_size=2048,
    intermediate_size=8192,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    vocab_size=128_256,
    max_positions=131_072,
    rope=_rope(
        rope_type="llama3",
        rope_theta=500_000.0,
        factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    ),
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
)

GPT_OSS_20B = _gpt_oss(layers=24, experts=32)
GPT_OSS_120B = _gpt_oss(layers=36, experts=128)

QWEN3_30B_A3B = ModelSizes(
    model_type="qwen3_moe",
    num_layers=48,
    hidden_size=2048,
    intermediate_size=6144,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    vocab_size=151_936,
    max_positions=40_960,
    rope=_rope(rope_type="default", rope_theta=1_000_000.0),
    rms_norm_eps=1e-6,
    tie_word_embeddings=False,
    num_experts=128,
    num_experts_per_token=8,
    moe_intermediate_size=768,
)


def loaded_sizes(published: ModelSizes, config: PreTrainedConfig) -> ModelSizes:
    """`published` with the sizes that a loaded model's config has instead."""
    names = {
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "vocab_size": "vocab_size",
        "tie_word_embeddings": "tie_word_embeddings",
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "moe_intermediate_size": "moe_intermediate_size",
        "sliding_window": "sliding_window",
    }
    return replace(
        published,
        **{
            ours: getattr(config, theirs, getattr(published, ours))
            for ours, theirs in names.items()
        },
    )


def library_config(sizes: ModelSizes) -> PreTrainedConfig:
    """The transformers config of these sizes; the cache is off, as in training."""
    from transformers import AutoConfig

    arguments: dict[str, object] = {
        "num_hidden_layers": sizes.num_layers,
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.max_positions,
        "rope_parameters": dict(sizes.rope),
        "rms_norm_eps": sizes.rms_norm_eps,
        "tie_word_embeddings": sizes.tie_word_embeddings,
        "use_cache": False,
    }
    if sizes.model_type == "gpt_oss":
        arguments |= {
            "num_local_experts": sizes.num_experts,
            "num_experts_per_tok": sizes.num_experts_per_token,
            "sliding_window": sizes.sliding_window,
            "layer_types": list(sizes.layer_types),
            "swiglu_limit": 7.0,
            "attention_bias": True,
            "router_aux_loss_coef": 0.9,
        }
    if sizes.model_type == "qwen3_moe":
        arguments |= {
            "num_experts": sizes.num_experts,
            "num_experts_per_tok": sizes.num_experts_per_token,
            "moe_intermediate_size": sizes.moe_intermediate_size,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "router_aux_loss_coef": 0.001,
        }
    return AutoConfig.for_model(sizes.model_type, **arguments)
