"""Keeps the documents of a row apart in models that the library builds masks for too coarsely."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

MODELS_BLIND_TO_POSITIONS = frozenset({"gpt_oss"})
"""Architectures whose forward makes its masks without `position_ids`, so that documents packed
into one row would see each other (transformers 5.17 to 5.24)."""


def packed_masks(
    model: PreTrainedModel, input_ids: torch.Tensor, position_ids: torch.Tensor
) -> dict[str, torch.Tensor | None] | None:
    """`attention_mask` for the model call: one mask for each kind of layer, or `None`.

    Made by the library's own functions, once a batch. `None`, or masks that are `None`, where the
    model or the attention in use keeps documents apart itself; then nothing is computed.
    """
    if model.config.model_type not in MODELS_BLIND_TO_POSITIONS:
        return None
    from transformers.masking_utils import (
        create_causal_mask,
        create_sliding_window_causal_mask,
    )

    # Only shape, dtype and device of the embeddings are used; an empty tensor carries them.
    embeddings = input_ids.new_empty((*input_ids.shape, 0), dtype=model.dtype)
    makers = {
        "full_attention": create_causal_mask,
        "sliding_attention": create_sliding_window_causal_mask,
    }
    # The cache argument has two names among the versions supported, hence by position.
    return {
        kind: make(model.config, embeddings, None, None, position_ids=position_ids)
        for kind, make in makers.items()
    }
