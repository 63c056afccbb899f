"""Language-model loss whose logits never exist all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from scenarios.batches import IGNORED_LABEL

if TYPE_CHECKING:
    from torch import nn


def chunked_loss(
    head: nn.Module,
    hidden: torch.Tensor,
    labels: torch.Tensor,
    *,
    num_predicted: int,
    chunk_tokens: int,
) -> torch.Tensor:
    """Mean cross entropy of the next token, equal to the library's but for the order of additions.

    `hidden` is `[1, T, hidden_size]`, `labels` `[1, T]` unshifted, `head` maps hidden states to
    logits. Each chunk's logits are freed after its loss and computed again in backward: at 49,152
    tokens and 151,936 words all of them together would take 30 GB in float32, and their gradient
    as much.
    """
    targets = F.pad(labels[0, 1:], (0, 1), value=IGNORED_LABEL)
    total = hidden.new_zeros((), dtype=torch.float32)
    chunks = zip(
        torch.split(hidden[0], chunk_tokens), torch.split(targets, chunk_tokens), strict=True
    )
    for states, wanted in chunks:
        total = total + checkpoint(_chunk_loss, head, states, wanted, use_reentrant=False)
    return total / num_predicted


def _chunk_loss(head: nn.Module, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = head(states).float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORED_LABEL, reduction="sum")
