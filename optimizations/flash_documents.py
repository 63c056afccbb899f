"""Document boundaries for flash attention, worked out once a forward from what the call holds.

transformers finds them in `position_ids` in every layer, and again in its recompute, with several
reads each; given `cu_seq_lens_*` and `max_length_*` as host integers it reads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn


class FlashDocuments:
    """Gives each call of a transformers model its boundaries until `detach`.

    Only calls of one row without an `attention_mask` are touched: the ones that transformers looks
    for documents in. Positions on the device are read once a call.
    """

    def __init__(self, model: nn.Module) -> None:
        """`model` is the transformers model itself."""
        self._hook = model.register_forward_pre_hook(_with_documents, with_kwargs=True)

    def detach(self) -> None:
        """Leave later calls as they are; calling it twice is harmless."""
        self._hook.remove()


def _with_documents(
    _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    ids = kwargs.get("input_ids", args[0] if args else kwargs.get("inputs_embeds"))
    asked = len(args) > 1 or kwargs.get("attention_mask") is not None or "cu_seq_lens_q" in kwargs
    if asked or not isinstance(ids, torch.Tensor) or ids.shape[0] != 1 or ids.shape[1] == 1:
        return None
    ends = _ends(kwargs.get("position_ids"), ids.shape[1])
    offsets = torch.tensor([0, *ends], dtype=torch.int32)
    longest = int(offsets.diff().max())
    if ids.is_cuda:
        offsets = offsets.pin_memory().to(ids.device, non_blocking=True)
    documents = {
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets,
        "max_length_q": longest,
        "max_length_k": longest,
    }
    return args, {**kwargs, **documents}


def _ends(positions: torch.Tensor | None, num_tokens: int) -> list[int]:
    """Where each document ends. It begins where positions restart, as transformers has it."""
    if positions is None:
        return [num_tokens]
    on_host = positions.reshape(-1).cpu()
    starts: list[int] = (on_host == on_host.min()).nonzero().flatten().tolist()
    return [*starts[1:], num_tokens]
