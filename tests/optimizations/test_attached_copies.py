"""A model is copied or saved while an optimization is attached: the copy stands on its own."""

from __future__ import annotations

import copy
import gc
import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness.errors import UsageError
from optimizations.checkpoint_reload import CheckpointReload
from optimizations.moe_routing import MoeRouting
from optimizations.packed_metadata import PackedMetadata
from tests.optimizations.tiny_models import logits_and_gradients, packed_row, tiny_model

if TYPE_CHECKING:
    from pathlib import Path

OPTIMIZATIONS: dict[str, Any] = {
    "packed-metadata": PackedMetadata(),
    "packed-metadata-varlen": PackedMetadata("varlen"),
    "moe-routing": MoeRouting(),
    "checkpoint-reload": CheckpointReload(min_bytes=0),
}
OURS = [
    (name, variant.name)
    for name, optimization in OPTIMIZATIONS.items()
    for variant in optimization.variants
    if variant.role != "peer"
]
ROW = packed_row([6, 5])


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def entries() -> set[str]:
    gc.collect()
    return {*ALL_ATTENTION_FUNCTIONS, *ALL_EXPERTS_FUNCTIONS}


@pytest.mark.parametrize(("name", "variant"), OURS)
def test_a_copy_computes_the_same_before_and_after_the_original_detaches(
    name: str, variant: str
) -> None:
    before = entries()
    model = tiny_model("gpt-oss")
    attachment = OPTIMIZATIONS[name].attach(model)
    attachment.select(variant)
    expected = logits_and_gradients(model, ROW)
    twin = copy.deepcopy(model)
    assert_same(logits_and_gradients(twin, ROW), expected)
    attachment.detach()
    assert_same(logits_and_gradients(twin, ROW), expected)
    assert_same(logits_and_gradients(copy.deepcopy(twin), ROW), expected)
    # The registries hold what a copy needs as long as there is one, and no longer.
    del twin
    assert entries() == before


@pytest.mark.parametrize("name", list(OPTIMIZATIONS))
def test_a_copy_can_be_attached_to_beside_its_original(name: str) -> None:
    optimization = OPTIMIZATIONS[name]
    baseline, published = (
        next(v.name for v in optimization.variants if v.role == role)
        for role in ("baseline", "published")
    )
    model = tiny_model("gpt-oss")
    attachment = optimization.attach(model)
    attachment.select(published)
    expected = logits_and_gradients(model, ROW)
    twin = copy.deepcopy(model)
    own = optimization.attach(twin)
    own.select(baseline)
    attachment.detach()
    attachment = optimization.attach(model)
    own.detach()
    # As it was before its own attachment: what the first one gave it.
    assert_same(logits_and_gradients(twin, ROW), expected)
    attachment.detach()


def test_a_copy_of_a_submodel_stands_on_its_own() -> None:
    model = tiny_model("gpt-oss")
    attachment = MoeRouting().attach(model)
    attachment.select("where-loop")
    expected = model.model(**ROW).last_hidden_state
    twin = copy.deepcopy(model.model)
    attachment.detach()
    assert torch.equal(twin(**ROW).last_hidden_state, expected)


def test_models_that_share_a_configuration_are_switched_by_one_at_a_time() -> None:
    model = tiny_model("gpt-oss")
    twin = type(model)(model.config)
    attachment = MoeRouting().attach(model)
    with pytest.raises(UsageError, match="detach"):
        MoeRouting().attach(twin)
    attachment.detach()
    MoeRouting().attach(twin).detach()


def test_a_model_dropped_while_attached_leaves_nothing_in_the_registries() -> None:
    before = entries()
    attachments = [OPTIMIZATIONS[name].attach(tiny_model("gpt-oss")) for name in OPTIMIZATIONS]
    assert entries() > before
    del attachments
    assert entries() == before


@pytest.mark.parametrize("name", list(OPTIMIZATIONS))
def test_saved_state_is_that_of_the_model_alone(name: str, tmp_path: Path) -> None:
    model = tiny_model("gpt-oss")
    attributes_before = [set(vars(module)) for module in model.modules()]
    attachment = OPTIMIZATIONS[name].attach(model)
    attachment.select(OPTIMIZATIONS[name].variants[1].name)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    assert_same(torch.load(buffer, weights_only=True), model.state_dict())
    model.save_pretrained(tmp_path)
    assert not any(b"gapless" in file.read_bytes() for file in tmp_path.iterdir())
    attachment.detach()
    assert [set(vars(module)) for module in model.modules()] == attributes_before


def test_a_whole_model_saved_while_attached_is_read_where_gapless_is_not_imported(
    tmp_path: Path,
) -> None:
    model = tiny_model("gpt-oss")
    attachments = []
    for name in ("packed-metadata", "moe-routing", "checkpoint-reload"):
        attachments.append(OPTIMIZATIONS[name].attach(model))
        attachments[-1].select(OPTIMIZATIONS[name].variants[1].name)
    path = tmp_path / "model.pt"
    torch.save(model, path)
    program = (
        "import sys, torch\n"
        f"model = torch.load({str(path)!r}, weights_only=False)\n"
        "assert not {'optimizations', 'harness'} & sys.modules.keys()\n"
        "print(sum(float(p.detach().double().sum()) for p in model.parameters()))\n"
    )
    read = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert float(read.stdout) == sum(float(p.detach().double().sum()) for p in model.parameters())
    for attachment in attachments:
        attachment.detach()
