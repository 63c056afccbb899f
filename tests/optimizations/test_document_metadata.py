"""Masks and boundaries against their definition; the cache against its promise."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizations.document_metadata import (
    BatchCache,
    boundaries_from_device,
    boundaries_from_host,
    mask_by_blocks,
    mask_by_comparison,
    mask_from_device,
    mask_from_host,
)
from tests.optimizations.tiny_models import OpCounter

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)
CPU = torch.device("cpu")


def visible_pairs(lengths: list[int], window: int | None) -> set[tuple[int, int]]:
    """(query, key) by the definition, one pair at a time."""
    document = [index for index, length in enumerate(lengths) for _ in range(length)]
    return {
        (q, k)
        for q in range(len(document))
        for k in range(q + 1)
        if document[q] == document[k] and (window is None or q - k < window)
    }


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, window=st.one_of(st.none(), st.integers(1, 15)))
def test_every_mask_is_the_definition(lengths: list[int], window: int | None) -> None:
    on_device = torch.tensor(lengths, dtype=torch.int32)
    by_loop = mask_from_device(on_device, torch.float32, window)
    assert by_loop.shape == (1, 1, sum(lengths), sum(lengths))
    assert set(by_loop.unique().tolist()) <= {0.0, float("-inf")}
    pairs = {(int(q), int(k)) for q, k in (by_loop[0, 0] == 0).nonzero()}
    assert pairs == visible_pairs(lengths, window)
    for build in (mask_by_comparison, mask_by_blocks, mask_from_host):
        assert torch.equal(build(lengths, torch.float32, CPU, window), by_loop)


@settings(max_examples=30, deadline=None)
@given(lengths=LENGTHS)
def test_both_boundaries_agree(lengths: list[int]) -> None:
    read = boundaries_from_device(torch.tensor(lengths), with_offsets=True)
    known = boundaries_from_host(lengths, CPU)
    assert read.cu_seqlens.dtype == known.cu_seqlens.dtype == torch.int32
    assert read.cu_seqlens.tolist() == known.cu_seqlens.tolist() == list(known.offsets or ())
    assert read.offsets == known.offsets
    assert read.max_seqlen == known.max_seqlen == max(lengths)


def test_comparison_launches_as_many_kernels_for_many_documents_as_for_two() -> None:
    counts = []
    for lengths in ([32, 32], [1] * 64):
        with OpCounter() as counter:
            mask_by_comparison(lengths, torch.float32, CPU, window=4)
        counts.append(counter.counts)
    assert counts[0] == counts[1]
    assert "aten::_local_scalar_dense" not in counts[0]


@pytest.mark.parametrize("build", [mask_by_comparison, mask_by_blocks])
@pytest.mark.parametrize("num_tokens", [1, 8, 15, 16, 17, 40])
def test_rows_of_a_mask_are_where_fused_kernels_want_them(build: Any, num_tokens: int) -> None:
    mask = build([num_tokens], torch.bfloat16, CPU, None)
    assert mask.shape == (1, 1, num_tokens, num_tokens)
    assert mask.stride(-1) == 1
    assert all(stride % 16 == 0 for stride in mask.stride()[:-1])


@pytest.mark.parametrize(("window", "calls"), [(None, 6), (1, 10)])
def test_the_published_loop_makes_its_calls_for_each_document(
    window: int | None, calls: int
) -> None:
    counts = []
    for lengths in ([4, 4], [2, 2, 2, 2]):
        with OpCounter() as counter:
            mask_from_device(torch.tensor(lengths), torch.float32, window)
        views = ("aten::slice", "aten::select", "aten::unsqueeze", "aten::unbind")
        counts.append(sum(n for name, n in counter.counts.items() if name not in views))
    # zeros, ones, triu, bool, masked_fill, and the copy into its place; with a window also arange,
    # the distance, the comparison and another masked_fill.
    assert counts[1] - counts[0] == 2 * calls


def test_masks_take_the_dtype_asked_for() -> None:
    lengths = torch.tensor([3, 2], dtype=torch.int32)
    assert mask_from_device(lengths, torch.bfloat16, None).dtype == torch.bfloat16
    assert mask_from_host([3, 2], torch.bfloat16, CPU, None).dtype == torch.bfloat16


def test_cache_builds_once_per_batch_and_key_and_drops_the_last_batch() -> None:
    cache = BatchCache()
    built: list[str] = []

    def build(name: str) -> str:
        built.append(name)
        return name

    first, second = object(), object()
    for _ in range(3):
        assert cache.get(first, "full", lambda: build("full")) == "full"
        assert cache.get(first, "window", lambda: build("window")) == "window"
    assert built == ["full", "window"]
    assert cache.get(second, "full", lambda: build("second")) == "second"
    assert cache.get(first, "full", lambda: build("again")) == "again"


def test_equal_batches_are_not_the_same_batch() -> None:
    cache = BatchCache()
    one, other = torch.tensor([3, 4]), torch.tensor([3, 4])
    assert cache.get(one, "k", lambda: 1) == 1
    assert cache.get(other, "k", lambda: 2) == 2


def test_cache_builds_once_when_threads_ask_together() -> None:
    cache = BatchCache()
    batch = object()
    built: list[int] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        for key in range(50):
            cache.get(batch, key, lambda key=key: built.append(key))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built) == list(range(50))
