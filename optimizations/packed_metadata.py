"""Packed metadata: document boundaries and masks made once per batch instead of in each layer.

Source: "How to Make LLM Training Faster with Unsloth and NVIDIA" (Unsloth, May 2026), first fix.
The model is called with `packed_documents=PackedDocuments(...)`; transformers hands the keyword
to the attention function of every decoder layer, through activation checkpointing too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from harness.errors import UsageError
from harness.record.finding import Answer
from harness.workload import PACKED_ATTENTION, Choice, Detachable, Optimization, Variant
from optimizations.variants import variant_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from optimizations.packed_sources import PackedMetadataAttachment

_DOCUMENTS = (
    "packed-metadata: document boundaries for flash attention come with the call, once a forward "
    "instead of in each layer"
)
_VARIANTS = (
    Variant(
        "per-layer",
        "baseline",
        "Every layer, and its recompute, reads the lengths back and builds its own metadata.",
    ),
    Variant(
        "cached",
        "published",
        "The first layer of a batch builds the metadata, the others reuse it.",
    ),
    Variant(
        "collator",
        "beyond",
        "The collator's host integers make the metadata once per batch, with no device read.",
    ),
    Variant(
        "library",
        "peer",
        "transformers' own sdpa attention, which finds the documents in position_ids.",
    ),
)


@dataclass(frozen=True)
class PackedMetadata(Optimization):
    """Reuses what attention over packed documents needs to know; `attention` is its backend."""

    attention: str = "sdpa-mask"

    name = "packed-metadata"
    summary = "Removes the device reads and mask builds that packed attention repeats per layer."
    variants = _VARIANTS
    removes_syncs = True
    attentions = PACKED_ATTENTION
    saved_work = "mask rebuilds"
    answers = (
        Answer(
            optimization="packed-metadata=collator",
            file="transformers/modeling_flash_attention_utils",
        ),
    )

    @property
    def trade_off(self) -> str:
        if self.attention == "varlen":
            return (
                "Holds one small boundary tensor per batch; saves little where layers take long "
                "enough to hide the reads."
            )
        return (
            "Holds one T x T mask per window size until the next batch; a varlen kernel needs no "
            "mask at all."
        )

    def using(self, attention: str) -> Self:
        return replace(self, attention=attention)

    def suited_to(self, model: nn.Module) -> Self:
        from optimizations.implementation_switch import model_device

        varlen = self.using("varlen")
        runs = model_device(model).type == "cuda" and varlen.requires(model, "collator") is None
        return varlen if runs else self.using("sdpa-mask")

    def requires(self, model: nn.Module, variant: str) -> str | None:
        from optimizations.implementation_switch import model_device, pretrained_model
        from optimizations.packed_attention import varlen_obstacle

        variant_of(self, variant)
        target = pretrained_model(model)
        if target is None:
            return f"{type(model).__name__} holds no transformers model"
        config = target.config.get_text_config()
        if getattr(config, "num_attention_heads", None) is None:
            return f"{type(target).__name__} has no attention"
        if variant == "library":
            return _library_obstacle(target, config)
        if getattr(config, "attn_logit_softcapping", None) is not None:
            return "the model caps attention logits, which no SDPA or varlen kernel here does"
        if self.attention == "sdpa-mask":
            return None
        return varlen_obstacle(
            model_device(model),
            target.dtype,
            sinks=any(hasattr(module, "sinks") for module in target.modules()),
            window=getattr(config, "sliding_window", None) is not None,
            dropout=bool(getattr(config, "attention_dropout", 0.0)),
        )

    def attach(self, model: nn.Module) -> PackedMetadataAttachment:
        from optimizations.packed_sources import PackedMetadataAttachment

        reasons = {v.name: self.requires(model, v.name) for v in _VARIANTS}
        if all(reasons.values()):
            raise UsageError(f"packed-metadata cannot run here: {reasons['per-layer']}.")
        return PackedMetadataAttachment(self, model, varlen=self.attention == "varlen")

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        from optimizations.tolerances import other_order_tolerance, same_order_tolerance

        if variant_of(self, variant).role == "peer":
            return other_order_tolerance(dtype)
        return same_order_tolerance(dtype)

    def choose(self, model: nn.Module, *, packed: bool, tokens: int | None) -> Choice:
        from optimizations.implementation_switch import implementation_of

        suited = self.suited_to(model)
        reason = suited.requires(model, "collator")
        if reason is not None:
            return Choice(self.name, None, reason)
        in_use = implementation_of(model, "attention")
        if in_use == "flex_attention":
            return Choice(
                self.name, None,
                "flex_attention stays: its block mask is built once in a forward and no layer "
                "reads the device; to replace it by attention over packed_documents, ask for it "
                "by name",
            )  # fmt: skip
        if "flash" in in_use:
            return Choice(
                self.name, None,
                f"{in_use} takes the collator's cu_seq_lens and max_length as host data itself",
            )  # fmt: skip
        if not packed:
            return Choice(
                self.name, None,
                "the batches are not said to be packed; pass packed=True and give each model call "
                "packed_documents",
            )  # fmt: skip
        return Choice(
            self.name, "collator",
            f"documents known on the host need no device read ({suited.attention})",
        )  # fmt: skip

    def library_remedy(self, model: nn.Module) -> tuple[str, Detachable] | None:
        from optimizations.flash_documents import FlashDocuments
        from optimizations.implementation_switch import implementation_of, pretrained_model

        target = pretrained_model(model)
        if target is None or "flash" not in implementation_of(model, "attention"):
            return None
        return _DOCUMENTS, FlashDocuments(target)


def _library_obstacle(target: Any, config: Any) -> str | None:
    """Why transformers itself would not keep the documents of a packed row apart."""
    if not getattr(target, "_supports_sdpa", False):
        return f"{type(target).__name__} has no sdpa attention in transformers"
    if getattr(config, "use_cache", False):
        return (
            "transformers finds documents in position_ids only without a key-value cache; set "
            "model.config.use_cache = False"
        )
    return None
