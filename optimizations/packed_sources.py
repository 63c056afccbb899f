"""The variants of packed metadata: where each takes boundaries and masks from, on one model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import UsageError
from optimizations.document_metadata import (
    BatchCache,
    Boundaries,
    boundaries_from_device,
    boundaries_from_host,
    mask_from_device,
    mask_from_host,
)
from optimizations.implementation_switch import ImplementationSwitch
from optimizations.packed_attention import AttentionSettings, VarlenAttention, dense_attention

if TYPE_CHECKING:
    import torch
    from torch import nn

    from harness.workload import Optimization, PackedDocuments


class MetadataSource(Protocol):
    """Where a layer's metadata comes from: the one thing in which the variants differ."""

    def boundaries(self, packed: PackedDocuments, query: torch.Tensor) -> Boundaries: ...

    def mask(
        self, packed: PackedDocuments, query: torch.Tensor, window: int | None
    ) -> torch.Tensor: ...

    def clear(self) -> None: ...


class PerLayerSource:
    """Builds everything on every call, from the lengths on the device."""

    def boundaries(self, packed: PackedDocuments, query: torch.Tensor) -> Boundaries:
        return boundaries_from_device(packed.lengths_on_device, with_offsets=not query.is_cuda)

    def mask(
        self, packed: PackedDocuments, query: torch.Tensor, window: int | None
    ) -> torch.Tensor:
        # The published baseline derives the boundaries first, whichever backend then runs.
        boundaries_from_device(packed.lengths_on_device, with_offsets=False)
        return mask_from_device(packed.lengths_on_device, query.dtype, window)

    def clear(self) -> None:
        """Holds nothing."""


class CachedSource:
    """Builds as `PerLayerSource`, on the first call of a batch only.

    As published, the batch is named by the identity of its lengths tensor, and boundaries and masks
    are kept apart. A mask's key also holds dtype and window, so that alternating sliding and full
    layers hit.
    """

    def __init__(self) -> None:
        self._cache = BatchCache()

    def boundaries(self, packed: PackedDocuments, query: torch.Tensor) -> Boundaries:
        return self._boundaries(packed.lengths_on_device, with_offsets=not query.is_cuda)

    def mask(
        self, packed: PackedDocuments, query: torch.Tensor, window: int | None
    ) -> torch.Tensor:
        lengths = packed.lengths_on_device
        self._boundaries(lengths, with_offsets=False)
        build = partial(mask_from_device, lengths, query.dtype, window)
        return self._cache.get(lengths, (query.dtype, window), build)

    def clear(self) -> None:
        self._cache.clear()

    def _boundaries(self, lengths: torch.Tensor, *, with_offsets: bool) -> Boundaries:
        build = partial(boundaries_from_device, lengths, with_offsets=with_offsets)
        return self._cache.get(lengths, "boundaries", build)


class CollatorSource:
    """Builds once per batch from the collator's host integers; never reads the device."""

    def __init__(self) -> None:
        self._cache = BatchCache()

    def boundaries(self, packed: PackedDocuments, query: torch.Tensor) -> Boundaries:
        build = partial(boundaries_from_host, packed.lengths, query.device)
        return self._cache.get(packed, query.device, build)

    def mask(
        self, packed: PackedDocuments, query: torch.Tensor, window: int | None
    ) -> torch.Tensor:
        build = partial(mask_from_host, packed.lengths, query.dtype, query.device, window)
        return self._cache.get(packed, (query.device, query.dtype, window), build)

    def clear(self) -> None:
        self._cache.clear()


class PackedMetadataAttachment:
    """One model's variants. Caches hold the last batch of the selected variant only."""

    def __init__(self, optimization: Optimization, model: nn.Module, *, varlen: bool) -> None:
        """`varlen` takes a kernel for packed rows instead of a mask."""
        self._optimization = optimization
        self._model = model
        self._sources: dict[str, MetadataSource] = {
            "per-layer": PerLayerSource(),
            "cached": CachedSource(),
            "collator": CollatorSource(),
        }
        kernel = VarlenAttention() if varlen else None
        self._switch = ImplementationSwitch(
            model,
            "attention",
            {
                name: partial(_packed_attention, source, kernel)
                for name, source in self._sources.items()
            },
        )

    def select(self, variant: str) -> None:
        """Use `variant`. Raises `UsageError` for an unknown one or one that cannot run here."""
        reason = self._optimization.requires(self._model, variant)
        if reason is not None:
            raise UsageError(f"{self._optimization.name}={variant} cannot run here: {reason}.")
        self._clear()
        self._switch.use("sdpa" if variant == "library" else variant)

    def detach(self) -> None:
        """Put the model's own attention back and drop the caches."""
        self._clear()
        self._switch.restore()

    def _clear(self) -> None:
        for source in self._sources.values():
            source.clear()


def _packed_attention(
    source: MetadataSource,
    varlen: VarlenAttention | None,
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    packed_documents: PackedDocuments | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function as transformers calls it; other keywords are not for attention."""
    packed = _checked_documents(module, query, attention_mask, packed_documents)
    settings = AttentionSettings(scaling, dropout, sliding_window, s_aux)
    if varlen is not None:
        boundaries = source.boundaries(packed, query)
        return varlen(query, key, value, boundaries, settings), None
    mask = source.mask(packed, query, sliding_window)
    return dense_attention(query, key, value, mask, settings), None


def _checked_documents(
    module: nn.Module,
    query: torch.Tensor,
    attention_mask: torch.Tensor | None,
    packed: PackedDocuments | None,
) -> PackedDocuments:
    if packed is None:
        raise UsageError(
            f"{type(module).__name__} was called without packed_documents; pass "
            "packed_documents=PackedDocuments(...) in the model call."
        )
    if attention_mask is not None:
        raise UsageError(
            "Packed attention takes no attention_mask; leave it out and count padding as a "
            "document of its own."
        )
    num_rows, num_tokens = query.shape[0], query.shape[2]
    if num_rows != 1 or num_tokens != sum(packed.lengths):
        raise UsageError(
            f"Packed documents hold {sum(packed.lengths)} tokens in one row, but attention was "
            f"called with {num_rows} row(s) of {num_tokens}; give the lengths of this batch."
        )
    return packed
