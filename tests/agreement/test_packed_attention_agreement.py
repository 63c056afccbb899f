"""Packed attention against each document alone through the stock model: no packing, no mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizations.packed_metadata import PackedMetadata
from tests.optimizations.tiny_models import (
    CONFIGS,
    enable_checkpointing,
    gradients,
    logits_and_gradients,
    packed_row,
    tiny_model,
    weighted_sum,
)

OURS = ("per-layer", "cached", "collator")
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def each_document_alone(family: str, row: dict[str, Any]) -> dict[str, torch.Tensor]:
    model = tiny_model(family, attention="eager")
    documents = row["input_ids"].split(list(row["packed_documents"].lengths), dim=1)
    logits = torch.cat([model(input_ids=document).logits for document in documents], dim=1)
    weighted_sum(logits).backward()
    return {"logits": logits.detach(), **gradients(model)}


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = float(value.abs().max()) or 1.0
        difference = float((actual[name] - value).abs().max()) / scale
        assert difference < 2e-5, name


@pytest.mark.parametrize("backend", ["sdpa-mask", "varlen"])
@pytest.mark.parametrize("family", list(CONFIGS))
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(lengths=LENGTHS)
def test_every_variant_equals_each_document_alone(
    family: str, backend: Any, lengths: list[int]
) -> None:
    row = packed_row(lengths)
    expected = each_document_alone(family, row)
    model = tiny_model(family)
    attachment = PackedMetadata(backend).attach(model)
    results = {}
    for variant in OURS:
        attachment.select(variant)
        results[variant] = logits_and_gradients(model, row)
        assert_close(results[variant], expected)
    for variant in OURS[1:]:
        for name, value in results["per-layer"].items():
            assert torch.equal(results[variant][name], value), (variant, name)
    attachment.detach()


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3-windows", "mixtral", "qwen3-moe"])
@settings(max_examples=6, deadline=None, derandomize=True)
@given(lengths=LENGTHS)
def test_library_variant_separates_documents(family: str, lengths: list[int]) -> None:
    row = packed_row(lengths)
    model = tiny_model(family)
    attachment = PackedMetadata().attach(model)
    attachment.select("library")
    assert_close(logits_and_gradients(model, row), each_document_alone(family, row))
    attachment.detach()


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("backend", ["sdpa-mask", "varlen"])
@pytest.mark.parametrize("family", ["llama", "qwen3-windows", "gpt-oss"])
def test_checkpoint_recompute_gets_the_documents_too(
    family: str, backend: Any, use_reentrant: bool
) -> None:
    row = packed_row([4, 1, 9, 6])
    model = tiny_model(family)
    attachment = PackedMetadata(backend).attach(model)
    plain = {}
    for variant in OURS:
        attachment.select(variant)
        plain[variant] = logits_and_gradients(model, row)
    enable_checkpointing(model, use_reentrant=use_reentrant)
    for variant in OURS:
        attachment.select(variant)
        recomputed = logits_and_gradients(model, row)
        for name, value in plain[variant].items():
            assert torch.equal(recomputed[name], value), (variant, name)
    attachment.detach()


def test_low_precision_stays_near() -> None:
    row = packed_row([7, 2, 12])
    expected = each_document_alone("qwen3-windows", row)["logits"]
    model = tiny_model("qwen3-windows").to(torch.bfloat16)
    attachment = PackedMetadata().attach(model)
    attachment.select("collator")
    actual = model(**row).logits.detach().float()
    attachment.detach()
    assert float((actual - expected).abs().max() / expected.abs().max()) < 0.05
