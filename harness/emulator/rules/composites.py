"""Functions of torch that decompose in C++ above the dispatch mode.

Those that read the device do so with the kind of their read; otherwise it would look like a tensor
passed where a number is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.reading import Reading
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

_READERS: tuple[tuple[Any, str, SyncKind], ...] = (
    (torch, "is_nonzero", SyncKind.BOOL_BRANCH),
    (torch, "istft", SyncKind.ARGUMENT_VALIDATION),
    (torch.nn.functional, "one_hot", SyncKind.DYNAMIC_OUTPUT_SIZE),
)
"""(module, function, kind)."""


def patch_composites(patches: Patches) -> None:
    """Let these functions do what they do on CUDA, their reads known by what they are for."""
    for owner, name, kind in _READERS:
        patches.wrap(owner, name, _reading(kind))
    patches.wrap(torch, "ctc_loss", _ctc_loss)


def _ctc_loss(
    original: Callable[..., torch.Tensor],
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """Lengths on the host become lists, which torch does itself except for a tensor subclass."""
    lengths = (
        value.tolist() if type(value) is torch.Tensor else value
        for value in (input_lengths, target_lengths)
    )
    return original(log_probs, targets, *lengths, *args, **kwargs)


def _reading(kind: SyncKind) -> Callable[..., Any]:
    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with Reading(kind):
            return original(*args, **kwargs)

    return around
