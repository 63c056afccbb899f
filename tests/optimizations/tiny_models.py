"""Tiny models of the families the optimizations must work on, and packed rows for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from harness.workload import PackedDocuments

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = 48
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "use_cache": False,
}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}

CONFIGS: dict[str, Any] = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES, head_dim=8),
    "qwen3-windows": lambda: Qwen3Config(
        **_SIZES, head_dim=8, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "gpt-oss": lambda: GptOssConfig(
        **_SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4
    ),
    "mixtral": lambda: MixtralConfig(**_SIZES, num_local_experts=4, sliding_window=4),
    "qwen3-moe": lambda: Qwen3MoeConfig(**_SIZES, **_EXPERTS, head_dim=8, num_experts=6),
}
DENSE = ("llama", "qwen3", "qwen3-windows")
SPARSE = ("gpt-oss", "mixtral", "qwen3-moe")


def tiny_model(family: str, attention: str | None = None) -> Any:
    """A two-layer model in training mode, without dropout, the same weights on every call."""
    torch.manual_seed(0)
    options = {} if attention is None else {"attn_implementation": attention}
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                # Large enough that softmaxes and routers decide.
                parameter.normal_(std=0.3)
    return model.train()


def enable_checkpointing(model: Any, *, use_reentrant: bool) -> None:
    """Checkpoint every decoder layer, by the name this transformers has for it."""
    newest = getattr(model, "activation_checkpointing_enable", None)
    enable = newest or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})


def packed_row(lengths: Sequence[int], seed: int = 0) -> dict[str, Any]:
    """Keyword arguments of one model call: documents of these lengths in one row."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(1, VOCABULARY, (1, sum(lengths)), generator=generator)
    return {
        "input_ids": input_ids,
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "packed_documents": PackedDocuments(
            tuple(lengths), torch.tensor(lengths, dtype=torch.int32)
        ),
    }


def weighted_sum(logits: torch.Tensor) -> torch.Tensor:
    """A loss that every logit pulls on differently."""
    generator = torch.Generator().manual_seed(1)
    return (logits * torch.randn(logits.shape, generator=generator)).sum()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """The gradients of the last backward, taken off the model."""
    taken = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return taken


def logits_and_gradients(model: Any, row: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Logits under the key `logits`, and the gradient of every parameter under its name."""
    logits = model(**row).logits
    weighted_sum(logits).backward()
    return {"logits": logits.detach(), **gradients(model)}


class OpCounter(TorchDispatchMode):
    """Counts aten operations by name, such as `aten::_local_scalar_dense` (a scalar read)."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        self.counts[name] = self.counts.get(name, 0) + 1
        return func(*args, **(kwargs or {}))
