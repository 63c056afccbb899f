"""What `packed-metadata` promises besides the right numbers: reads, exact removal, clear errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness.errors import UsageError
from harness.workload import Optimization, PackedDocuments
from optimizations.packed_metadata import PackedMetadata
from tests.optimizations.tiny_models import (
    OpCounter,
    enable_checkpointing,
    logits_and_gradients,
    packed_row,
    tiny_model,
)

NUM_LAYERS = 2
LENGTHS = (5, 1, 7)


def scalar_reads(model: Any, variant: str, backend: Any) -> int:
    attachment = PackedMetadata(backend).attach(model)
    attachment.select(variant)
    with OpCounter() as counter:
        logits_and_gradients(model, packed_row(LENGTHS))
    attachment.detach()
    return counter.counts.get("aten::_local_scalar_dense", 0)


@pytest.mark.parametrize(("backend", "reads"), [("sdpa-mask", 2), ("varlen", 1)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_reads_per_step_are_as_published(backend: Any, reads: int, checkpointing: bool) -> None:
    model = tiny_model("llama")
    passes = 1
    if checkpointing:
        enable_checkpointing(model, use_reentrant=False)
        passes = 2
    assert scalar_reads(model, "per-layer", backend) == reads * NUM_LAYERS * passes
    assert scalar_reads(model, "cached", backend) == reads
    assert scalar_reads(model, "collator", backend) == 0


def test_alternating_windows_hit_the_cache() -> None:
    # The longest length once, and the sum for each of two masks; not for each layer.
    model = tiny_model("qwen3-windows")
    enable_checkpointing(model, use_reentrant=False)
    assert scalar_reads(model, "per-layer", "sdpa-mask") == 2 * 2 * NUM_LAYERS
    assert scalar_reads(model, "cached", "sdpa-mask") == 1 + 2
    assert scalar_reads(model, "collator", "sdpa-mask") == 0


def test_a_new_batch_is_never_served_from_the_old_one() -> None:
    model = tiny_model("llama")
    rows = [packed_row(lengths) for lengths in ((6, 7), (7, 6), (13,))]
    attachment = PackedMetadata().attach(model)
    attachment.select("per-layer")
    expected = [model(**row).logits for row in rows]
    for variant in ("cached", "collator"):
        attachment.select(variant)
        for row, logits in zip(rows, expected, strict=True):
            assert torch.equal(model(**row).logits, logits)
    attachment.detach()


@pytest.mark.parametrize("variant", ["cached", "collator"])
def test_a_batch_evaluated_in_inference_mode_can_train_next(variant: str) -> None:
    model, row = tiny_model("llama"), packed_row(LENGTHS)
    attachment = PackedMetadata().attach(model)
    attachment.select(variant)
    with torch.inference_mode():
        model(**row)
    after_evaluation = logits_and_gradients(model, row)
    attachment.select(variant)  # forgets the batch
    for name, value in logits_and_gradients(model, row).items():
        assert torch.equal(value, after_evaluation[name]), name
    attachment.detach()


def test_detach_leaves_the_model_and_the_library_as_before() -> None:
    for family in ("llama", "gpt-oss"):
        model = tiny_model(family)
        row = packed_row(LENGTHS)
        config_before = copy.deepcopy(vars(model.config))
        names_before = list(ALL_ATTENTION_FUNCTIONS)
        outputs_before = logits_and_gradients(model, row)
        optimization = PackedMetadata()
        attachment = optimization.attach(model)
        for variant in ("per-layer", "cached", "collator"):
            attachment.select(variant)
            logits_and_gradients(model, row)
        attachment.detach()
        attachment.detach()
        assert vars(model.config) == config_before
        assert list(ALL_ATTENTION_FUNCTIONS) == names_before
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        for name, value in logits_and_gradients(model, row).items():
            assert torch.equal(value, outputs_before[name])


def test_attach_alone_changes_nothing_that_is_computed() -> None:
    model = tiny_model("llama")
    row = packed_row(LENGTHS)
    before = model(**row).logits
    attachment = PackedMetadata().attach(model)
    assert torch.equal(model(**row).logits, before)
    attachment.detach()


def test_attaching_twice_is_an_error_and_a_late_detach_does_no_harm() -> None:
    model = tiny_model("llama")
    first = PackedMetadata().attach(model)
    with pytest.raises(UsageError, match="detach"):
        PackedMetadata("varlen").attach(model)
    first.detach()
    second = PackedMetadata("varlen").attach(model)
    first.detach()
    second.select("collator")
    model(**packed_row(LENGTHS))
    with pytest.raises(UsageError, match="attach it again"):
        first.select("cached")
    second.detach()


def test_two_models_are_switched_apart() -> None:
    one, other = tiny_model("llama"), tiny_model("qwen3")
    attached_one, attached_other = PackedMetadata().attach(one), PackedMetadata().attach(other)
    attached_one.select("collator")
    attached_other.select("cached")
    attached_other.detach()
    one(**packed_row(LENGTHS))
    assert other.config._attn_implementation == "sdpa"
    attached_one.detach()
    assert one.config._attn_implementation == "sdpa"


# peft asks transformers a question under a name that transformers 5.24 renamed.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_peft_wrapper_is_seen_through() -> None:
    model = tiny_model("llama")
    wrapped = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    row = packed_row(LENGTHS)
    attachment = PackedMetadata().attach(wrapped)
    attachment.select("per-layer")
    expected = wrapped(**row).logits
    attachment.select("collator")
    assert torch.equal(wrapped(**row).logits, expected)
    attachment.detach()
    assert model.config._attn_implementation == "sdpa"


def test_unknown_variant_names_the_choices() -> None:
    attachment = PackedMetadata().attach(tiny_model("llama"))
    with pytest.raises(UsageError, match="per-layer, cached, collator, library"):
        attachment.select("nothing")
    attachment.detach()


def test_reasons_name_what_is_in_the_way() -> None:
    optimization: Optimization = PackedMetadata()
    assert optimization.requires(tiny_model("llama"), "library") is None
    assert "sdpa" in str(optimization.requires(tiny_model("gpt-oss"), "library"))
    cached = tiny_model("llama")
    cached.config.use_cache = True
    assert "use_cache" in str(optimization.requires(cached, "library"))
    assert "no transformers model" in str(optimization.requires(nn.Linear(2, 2), "cached"))
    with pytest.raises(UsageError, match="no transformers model"):
        optimization.attach(nn.Linear(2, 2))


def test_the_library_would_mix_documents_where_it_is_refused() -> None:
    # The reason given for `use_cache` is true: with a cache, transformers sees one document.
    model = tiny_model("llama")
    row = packed_row(LENGTHS)
    apart = model(**row).logits
    mixed = model(**row, use_cache=True).logits
    assert not torch.allclose(apart, mixed, atol=1e-3)


def test_calls_that_cannot_be_right_are_refused() -> None:
    model = tiny_model("llama")
    attachment = PackedMetadata().attach(model)
    attachment.select("collator")
    row = packed_row(LENGTHS)
    with pytest.raises(UsageError, match="without packed_documents"):
        model(input_ids=row["input_ids"])
    with pytest.raises(UsageError, match="attention_mask"):
        model(**row, attention_mask=torch.zeros(1, 1, sum(LENGTHS), sum(LENGTHS)))
    wrong = PackedDocuments((2, 3), torch.tensor([2, 3]))
    with pytest.raises(UsageError, match="5 tokens"):
        model(**(row | {"packed_documents": wrong}))
    attachment.detach()


def test_dropout_of_the_module_is_applied_in_training_only() -> None:
    model = tiny_model("llama")
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    row = packed_row(LENGTHS)
    for backend in ("sdpa-mask", "varlen"):
        attachment = PackedMetadata(backend).attach(model)
        attachment.select("collator")
        model.train()
        assert not torch.equal(model(**row).logits, model(**row).logits)
        model.eval()
        assert torch.equal(model(**row).logits, model(**row).logits)
        attachment.detach()


def test_roles_and_tolerances_follow_the_contract() -> None:
    for backend in ("sdpa-mask", "varlen"):
        optimization: Optimization = PackedMetadata(backend)
        roles = [variant.role for variant in optimization.variants]
        assert roles.count("baseline") == roles.count("published") == 1
        for variant in optimization.variants:
            tolerance, reason = optimization.tolerance(variant.name, torch.float32)
            assert 0.0 <= tolerance < 1e-3
            assert reason
