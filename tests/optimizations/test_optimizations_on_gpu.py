"""On CUDA: kernels agree with the dense mask, and the sync-free variants do not wait."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from optimizations.moe_routing import MoeRouting
from optimizations.packed_metadata import PackedMetadata
from tests.optimizations.tiny_models import packed_row, tiny_model, weighted_sum

pytestmark = pytest.mark.gpu
# Their sum is odd: a dense mask then has rows that fused kernels take only with room between them.
LENGTHS = (37, 1, 90, 61)


def on_gpu(row: dict[str, Any]) -> dict[str, Any]:
    documents = row["packed_documents"]
    moved = {k: v.cuda() for k, v in row.items() if isinstance(v, torch.Tensor)}
    on_device = documents.lengths_on_device.cuda()
    return moved | {"packed_documents": type(documents)(documents.lengths, on_device)}


def step(model: Any, row: dict[str, Any]) -> torch.Tensor:
    logits: torch.Tensor = model(**row).logits
    logits.backward(torch.ones_like(logits))
    model.zero_grad()
    return logits.detach()


def host_waits(model: Any, row: dict[str, Any]) -> bool:
    """Whether the host waits for the device anywhere in one step."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(model, row)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


@pytest.mark.parametrize("family", ["llama", "qwen3-windows"])
def test_varlen_kernels_agree_with_the_dense_mask(family: str) -> None:
    model = tiny_model(family).to("cuda", torch.bfloat16)
    row = on_gpu(packed_row(LENGTHS))
    logits = {}
    for backend in ("sdpa-mask", "varlen"):
        for variant in ("per-layer", "cached", "collator"):
            attachment = PackedMetadata(backend).attach(model)
            attachment.select(variant)
            logits[backend, variant] = step(model, row).float()
            attachment.detach()
    reference = logits["sdpa-mask", "per-layer"]
    for key, value in logits.items():
        assert float((value - reference).abs().max() / reference.abs().max()) < 0.05, key


@pytest.mark.parametrize("backend", ["sdpa-mask", "varlen"])
def test_only_the_collator_variant_never_waits(backend: Any) -> None:
    model = tiny_model("qwen3-windows").to("cuda", torch.bfloat16)
    attachment = PackedMetadata(backend).attach(model)
    waited = {}
    for variant in ("per-layer", "cached", "collator"):
        attachment.select(variant)
        step(model, on_gpu(packed_row(LENGTHS)))
        waited[variant] = host_waits(model, on_gpu(packed_row(LENGTHS)))
    attachment.detach()
    assert waited == {"per-layer": True, "cached": True, "collator": False}


@pytest.mark.parametrize("family", ["gpt-oss", "qwen3-moe"])
def test_grouped_experts_agree_and_do_not_wait(family: str) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0: torch's grouped matmul reads offsets below it")
    model = tiny_model(family).to("cuda", torch.bfloat16)
    attention, experts = PackedMetadata().attach(model), MoeRouting().attach(model)
    attention.select("collator")
    experts.select("where-loop")
    expected = step(model, on_gpu(packed_row(LENGTHS))).float()
    experts.select("device-offsets")
    found = step(model, on_gpu(packed_row(LENGTHS))).float()
    assert not host_waits(model, on_gpu(packed_row(LENGTHS)))
    experts.detach()
    attention.detach()
    # A rounding may send a token elsewhere, so the middle of the differences is judged.
    assert float((found - expected).abs().median() / expected.abs().max()) < 0.02


@pytest.mark.parametrize("variant", ["where-loop", "argsort", "device-offsets"])
def test_experts_agree_in_float32(variant: str) -> None:
    model = tiny_model("gpt-oss")
    attention, experts = PackedMetadata().attach(model), MoeRouting().attach(model)
    attention.select("collator")
    experts.select("where-loop")
    expected = model(**packed_row(LENGTHS)).logits.detach()
    model.cuda()
    experts.select(variant)
    logits = model(**on_gpu(packed_row(LENGTHS))).logits
    weighted_sum(logits.cpu()).backward()
    experts.detach()
    attention.detach()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(logits.detach().cpu(), expected, rtol=1e-3, atol=1e-3)
