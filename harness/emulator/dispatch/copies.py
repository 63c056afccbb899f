"""Copies between host and device: which wait, and which host memory is pinned."""

from __future__ import annotations

import torch

from harness.emulator.tensors.op_events import Copy, Wait
from harness.record.sync_kinds import SyncKind


def mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Remember that the storage of this host tensor counts as pinned; its views do too."""
    tensor.untyped_storage()._gapless_pinned = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `mark_pinned` was called on this storage."""
    return getattr(tensor.untyped_storage(), "_gapless_pinned", False)


def copy_of(
    source: torch.Tensor,
    to_device: bool,
    non_blocking: bool,
    *,
    pinned: bool | None = None,
    size_of: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Copy | None:
    """The copy of `source` to the device, or from it to the host; `None` where there is no data.

    `size_of` gives the number of elements where it differs from the source's (broadcast).
    `pinned` is whether the host side is pinned; by default the source's, or for a copy to the host
    what torch does: pageable when blocking, pinned staging otherwise. `dtype` is the target's,
    where it may differ.
    """
    elements = (source if size_of is None else size_of).numel()
    if elements == 0:
        return None  # torch returns before it reaches the driver
    if pinned is None:
        pinned = is_pinned(source) if to_device else non_blocking
    if to_device and pinned and _is_staged(source, dtype or source.dtype, non_blocking):
        pinned = False
    return Copy(
        direction="h2d" if to_device else "d2h",
        num_bytes=elements * source.element_size(),
        pinned=pinned,
        blocking=not non_blocking,
    )


def _is_staged(source: torch.Tensor, dtype: torch.dtype, non_blocking: bool) -> bool:
    """Whether a copy to the device first goes to pageable memory, cast or made dense there.

    A copy that does not block is cast on the device, one that blocks on the host.
    """
    if dtype != source.dtype:
        return not (non_blocking and source.is_contiguous())
    return not torch.ops.aten.is_non_overlapping_and_dense(source)


def copy_waits(op: str, copy: Copy) -> tuple[Wait, ...]:
    """How this copy makes the host wait (cuda/Copy.cu)."""
    if copy.direction == "d2h":
        # Into pageable memory the driver returns once the copy has completed, whatever is asked.
        return (Wait(op, SyncKind.D2H_COPY, 1),) if copy.blocking or not copy.pinned else ()
    if copy.blocking:
        kind = SyncKind.BLOCKING_PINNED_H2D if copy.pinned else SyncKind.PAGEABLE_H2D
        return (Wait(op, kind, 1),)
    return () if copy.pinned else (Wait(op, SyncKind.PAGEABLE_NON_BLOCKING, 0),)
