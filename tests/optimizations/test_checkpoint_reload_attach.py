"""Attaching holds a model's checkpointing, detaching gives it back, and refusals say why."""

from __future__ import annotations

import copy
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.errors import UsageError
from optimizations.checkpoint_reload import CheckpointReload
from tests.optimizations.checkpoint_stack import assert_same_bits, make_stack, rows, step
from tests.optimizations.tiny_models import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = CheckpointReload(min_bytes=0)
VARIANTS = tuple(variant.name for variant in ALL.variants)
OFFLOADING = ("single-buffer", "double-buffer", "prefetch")


def module_state(model: nn.Module) -> list[dict[str, object]]:
    return [
        {
            k: v
            for k, v in module.__dict__.items()
            if "gradient_checkpointing" in k or "gapless" in k
        }
        for module in model.modules()
    ]


def checkpoint_none(model: Any) -> None:
    pass


def checkpoint_all(model: Any) -> None:
    model._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=checkpoint)


def checkpoint_some(model: Any) -> None:
    checkpoint_all(model)
    for layer in model.model.layers[::2]:
        layer.gradient_checkpointing = False


@pytest.mark.parametrize("prepare", [checkpoint_none, checkpoint_all, checkpoint_some])
def test_detach_restores_every_flag_and_function(prepare: Callable[[Any], None]) -> None:
    model = tiny_model("qwen3")
    prepare(model)
    before = module_state(model)
    attachment = ALL.attach(model)
    for variant in VARIANTS:
        attachment.select(variant)
    assert module_state(model) != before
    attachment.detach()
    attachment.detach()
    assert module_state(model) == before
    with pytest.raises(UsageError, match="detached"):
        attachment.select("plain")


def test_layers_the_user_does_not_checkpoint_stay_so() -> None:
    model = tiny_model("qwen3")
    checkpoint_some(model)
    attachment = ALL.attach(model)
    attachment.select("single-buffer")
    flags = [layer.gradient_checkpointing for layer in model.model.layers]
    assert flags == [False, True]
    attachment.detach()


# peft asks transformers for a property that transformers 5.24 renamed.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_one_model_has_one_attachment_at_a_time() -> None:
    model = get_peft_model(tiny_model("llama"), LoraConfig(target_modules=["q_proj"]))
    attachment = ALL.attach(model)
    with pytest.raises(UsageError, match="already held"):
        ALL.attach(model.base_model.model)
    attachment.detach()
    ALL.attach(model.base_model.model).detach()


def test_an_attached_model_can_be_copied() -> None:
    model = make_stack()
    attachment = ALL.attach(model)
    attachment.select("prefetch")
    expected = step(model, rows(8))
    assert_same_bits(step(copy.deepcopy(model), rows(8)), expected)
    attachment.detach()


def test_what_cannot_run_says_why() -> None:
    assert "gradient checkpointing" in (ALL.requires(nn.Linear(2, 2), "prefetch") or "")
    with pytest.raises(UsageError, match="cannot be used here"):
        ALL.attach(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="choose one of plain, single-buffer"):
        ALL.requires(make_stack(), "triple-buffer")
    on_meta = make_stack().to("meta")
    assert ALL.requires(on_meta, "plain") is None
    assert "meta" in (ALL.requires(on_meta, "prefetch") or "")
    with pytest.raises(UsageError, match=r"prefetch cannot be used here: .* meta"):
        ALL.attach(on_meta).select("prefetch")
    with pytest.raises(UsageError, match="keep_last=-1; use 0 or more"):
        CheckpointReload(keep_last=-1)


@pytest.mark.parametrize("is_integrated", [True, False])
def test_a_gpu_that_shares_host_memory_has_nothing_to_offload_to(
    is_integrated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_stack()
    monkeypatch.setattr(
        model, "parameters", lambda: iter([SimpleNamespace(device=torch.device("cuda", 0))])
    )
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(is_integrated=is_integrated),
    )
    reasons = [ALL.requires(model, variant) for variant in OFFLOADING]
    assert [reason is not None for reason in reasons] == [is_integrated] * 3
    assert ALL.requires(model, "plain") is None


def test_detach_ends_the_worker_threads() -> None:
    def workers() -> int:
        return sum(thread.name.startswith("gapless-") for thread in threading.enumerate())

    before = workers()
    model = make_stack()
    attachment = ALL.attach(model)
    for variant in OFFLOADING:
        attachment.select(variant)
        step(model, rows(8))
    assert workers() > before
    attachment.detach()
    assert workers() == before


def test_variants_have_their_roles() -> None:
    roles = {variant.name: variant.role for variant in CheckpointReload().variants}
    assert roles == {
        "plain": "reference",
        "single-buffer": "baseline",
        "double-buffer": "published",
        "prefetch": "beyond",
        "save-on-cpu": "peer",
    }
    if not torch.cuda.is_available():
        assert {ALL.tolerance(v, torch.bfloat16)[0] for v in VARIANTS} == {0.0}
