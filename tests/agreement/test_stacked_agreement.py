"""All optimizations at once, in any mix, on a model that uses all of them."""

from __future__ import annotations

import itertools

import pytest
import torch

from optimizations.optimization_catalogue import NAMES, create
from tests.optimizations.tiny_models import (
    enable_checkpointing,
    logits_and_gradients,
    packed_row,
    tiny_model,
)


@pytest.mark.parametrize("family", ["gpt-oss", "qwen3-moe"])
def test_every_mix_of_baseline_and_beyond_trains_the_same(family: str) -> None:
    model = tiny_model(family)
    enable_checkpointing(model, use_reentrant=False)
    row = packed_row([6, 1, 9, 4])
    before = logits_and_gradients(model, row)
    optimizations = {name: create(name) for name in NAMES}
    attachments = {name: made.attach(model) for name, made in optimizations.items()}
    ends = {
        name: [v.name for v in made.variants if v.role in ("baseline", "published", "beyond")]
        for name, made in optimizations.items()
    }
    results = []
    for mix in itertools.product(*ends.values()):
        for name, variant in zip(NAMES, mix, strict=True):
            attachments[name].select(variant)
        results.append(logits_and_gradients(model, row))
    for attachment in reversed(attachments.values()):
        attachment.detach()
    assert len(results) >= 3**3
    for result in results:
        for name, value in results[0].items():
            scale = float(value.abs().max())
            assert float((result[name] - value).abs().max()) <= 3e-5 * scale, name
    after = logits_and_gradients(model, row)
    assert all(torch.equal(after[name], value) for name, value in before.items())
