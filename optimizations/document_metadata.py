"""What attention over packed documents needs to know: boundaries and the dense mask.

Two ways to get each. From the device: the lengths are read back, and the mask is filled document
by document (what the published baseline does). From the host: the collator's integers are used as
they are, and nothing is read.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

Value = TypeVar("Value")

_ROW_MULTIPLE = 16


@dataclass(frozen=True)
class Boundaries:
    """Where documents begin and end in one packed row."""

    cu_seqlens: torch.Tensor
    """`int32[num_documents + 1]` on the device: 0, then the end of each document."""
    max_seqlen: int
    offsets: tuple[int, ...] | None = None
    """The same as `cu_seqlens`, on the host, where attention runs document by document."""


def boundaries_from_device(lengths: torch.Tensor, *, with_offsets: bool) -> Boundaries:
    """Boundaries from `int[num_documents]` on the device; reads it once, twice with offsets."""
    lengths = lengths.to(torch.int32)
    cu_seqlens = torch.zeros(lengths.numel() + 1, dtype=torch.int32, device=lengths.device)
    torch.cumsum(lengths, 0, dtype=torch.int32, out=cu_seqlens[1:])
    max_seqlen = int(lengths.max().item())
    offsets = tuple(cu_seqlens.tolist()) if with_offsets else None
    return Boundaries(cu_seqlens, max_seqlen, offsets)


def boundaries_from_host(lengths: Sequence[int], device: torch.device) -> Boundaries:
    """Boundaries from host integers; one upload that the host does not wait for."""
    offsets = (0, *itertools.accumulate(lengths))
    cu_seqlens = _upload(torch.tensor(offsets, dtype=torch.int32), device)
    return Boundaries(cu_seqlens, max(lengths), offsets)


def mask_from_device(lengths: torch.Tensor, dtype: torch.dtype, window: int | None) -> torch.Tensor:
    """Additive mask `[1, 1, T, T]`, a block for each document; reads the device twice.

    Op by op what the published code does: six calls a document, and four more with a window.

    0 where a query may see a key: same document, not later, and less than `window` tokens back.
    `-inf` elsewhere. `T` is the sum of `lengths`.
    """
    device = lengths.device
    num_tokens = int(lengths.sum().item())
    mask = torch.full((num_tokens, num_tokens), float("-inf"), dtype=dtype, device=device)
    start = 0
    for length in lengths.tolist():
        ones = torch.ones((length, length), device=device)
        later = torch.triu(ones, diagonal=1).bool()
        block = torch.zeros((length, length), dtype=dtype, device=device)
        block = block.masked_fill(later, float("-inf"))
        if window is not None and window < length:
            token = torch.arange(length, device=device)
            block = block.masked_fill(token[:, None] - token >= window, float("-inf"))
        mask[start : start + length, start : start + length] = block
        start += length
    return mask[None, None]


def mask_from_host(
    lengths: Sequence[int], dtype: torch.dtype, device: torch.device, window: int | None
) -> torch.Tensor:
    """The mask of `mask_from_device` from host integers, without a read.

    It is additive because SDPA would turn a boolean mask into this one in every layer.
    """
    # Few kernels matter on an accelerator, few passes over T x T values on a CPU: there, blocks
    # are several times as fast as comparisons (benchmarks/optimization_ops.py).
    if device.type == "cpu":
        return mask_by_blocks(lengths, dtype, device, window)
    return mask_by_comparison(lengths, dtype, device, window)


def mask_by_comparison(
    lengths: Sequence[int], dtype: torch.dtype, device: torch.device, window: int | None
) -> torch.Tensor:
    """The mask in five kernels, however many documents there are.

    A query at `q` sees the keys `first_key[q] <= k <= q`, so one integer a token says it all.
    """
    per_document = torch.tensor(lengths)
    num_tokens = sum(lengths)
    first_key = torch.repeat_interleave(
        per_document.cumsum(0) - per_document, per_document, output_size=num_tokens
    ).to(torch.int32)
    if window is not None:
        oldest_in_window = torch.arange(1 - window, num_tokens + 1 - window, dtype=torch.int32)
        first_key = torch.maximum(first_key, oldest_in_window)
    token = torch.arange(num_tokens, dtype=torch.int32, device=device)
    visible = (token >= _upload(first_key, device)[:, None]).tril_()
    return _all_hidden(num_tokens, dtype, device).masked_fill_(visible, 0.0)[None, None]


def mask_by_blocks(
    lengths: Sequence[int], dtype: torch.dtype, device: torch.device, window: int | None
) -> torch.Tensor:
    """The mask as corners of one block, that of the longest document: a copy per document."""
    block = causal_mask(max(lengths), window, dtype, device)
    mask = _all_hidden(sum(lengths), dtype, device)
    for start, length in zip(itertools.accumulate(lengths, initial=0), lengths, strict=False):
        mask[start : start + length, start : start + length] = block[:length, :length]
    return mask[None, None]


def causal_mask(
    length: int, window: int | None, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Additive mask `[n, n]` of one document."""
    visible = torch.ones((length, length), dtype=torch.bool, device=device).tril_()
    if window is not None:
        visible.triu_(diagonal=1 - window)
    mask = torch.full((length, length), float("-inf"), dtype=dtype, device=device)
    return mask.masked_fill_(visible, 0.0)


def _all_hidden(num_tokens: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`[T, T]` of `-inf`, whose rows start at multiples of 16 values in memory.

    Fused kernels ask for that; where it is not so, SDPA copies the mask into such rows, again in
    each layer.
    """
    row = -(-num_tokens // _ROW_MULTIPLE) * _ROW_MULTIPLE
    storage = torch.full((num_tokens, row), float("-inf"), dtype=dtype, device=device)
    return storage[:, :num_tokens]


def _upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy to `device`; from pinned memory where that lets the host go on at once."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class BatchCache:
    """Values derived from one batch; all are dropped when the next batch arrives.

    The batch is named by the identity of an object that lives as long as its entries. Thread-safe,
    because checkpoint recompute on CUDA runs on autograd's thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batch: object = None
        self._entries: dict[Hashable, object] = {}

    def get(self, batch: object, key: Hashable, build: Callable[[], Value]) -> Value:
        """The value for `key` in `batch`, built on the first call. `build` must not call `get`."""
        with self._lock:
            if batch is not self._batch:
                self._entries = {}
                self._batch = batch
            if key not in self._entries:
                # What inference mode makes, autograd cannot save when the same batch trains next.
                with torch.inference_mode(mode=False):
                    self._entries[key] = build()
            return cast("Value", self._entries[key])

    def clear(self) -> None:
        """Forget everything, so that an unselected variant holds no memory."""
        with self._lock:
            self._entries = {}
            self._batch = None
