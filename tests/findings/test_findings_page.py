"""docs/findings.md says what the audit finds in the transformers that is installed."""

from __future__ import annotations

import importlib.metadata
import linecache
from typing import TYPE_CHECKING, Any

import pytest
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers.models.llama import modeling_llama

from docs.findings_page import PAGE, findings_page, lines_of, main
from docs.stock_models import Setting, audit_setting
from harness.audit.growth import Sizes

if TYPE_CHECKING:
    from torch import nn


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    version = importlib.metadata.version("transformers")
    if f"transformers {version}," not in text:
        pytest.skip(f"the page was written for another transformers than {version}")
    return text


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    page()
    assert main(["--check"]) == 0


def test_packed_flash_attention_is_as_the_page_says() -> None:
    text = page()
    for line in lines_of(Setting("Llama", "flash_attention_2", None, "packed")):
        where = f"{line.file}:{line.line}".replace("_", r"\_")
        waits = line.waits.replace("*", r"\*")
        assert f"| {line.kind} | {where} | {waits} |" in text


def test_the_loop_over_experts_grows_as_its_source_says() -> None:
    """Per expert: one test, one `where` and its index, two weights; once: `nonzero`. All twice,
    for activation checkpointing runs the layer again."""
    (loop,) = [
        line
        for line in lines_of(Setting("Qwen3Moe", "sdpa", "eager", "plain"))
        if line.kind == "polling-loop"
    ]
    assert loop.waits == "L*(2 + 10*E_hit)"


def test_what_groups_on_the_device_polls_nothing() -> None:
    for experts in ("batched_mm", "grouped_mm"):
        lines = lines_of(Setting("Qwen3Moe", "sdpa", experts, "plain"))
        assert {line.kind for line in lines if line.waits != "0"} == {"scalar-read"}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_rotary_embeddings_are_built_once_a_step_and_not_by_layer(attention: str) -> None:
    """`LlamaModel.forward` builds positions and rotary embeddings before its loop over layers."""
    calls = []

    def count(module: nn.Module, *_: Any) -> None:
        if type(module).__name__ == "LlamaRotaryEmbedding":
            calls.append(module)

    hook = register_module_forward_pre_hook(count)
    try:
        audit_setting(Setting("Llama", attention, None, "plain"), Sizes(4))
    finally:
        hook.remove()
    lines = lines_of(Setting("Llama", attention, None, "plain"))
    (rebuilt,) = [line for line in lines if line.kind == "rebuilt-metadata"]

    assert len(calls) == 2, "one in the step that warms up, one in the step that counts"
    assert rebuilt.times == "1 (each step)"
    assert rebuilt.code.startswith("position_ids = torch.arange")
    source = linecache.getlines(modeling_llama.__file__)
    assert any("cos" in source[line - 1] for line in rebuilt.also)


def test_a_page_of_one_setting_has_its_rows_and_code() -> None:
    text = findings_page([Setting("Llama", "sdpa", None, "padded")])
    assert "## Llama" in text
    assert "| scalar-read | transformers/masking\\_utils.py:" in text
    assert "fast_all(padding_mask)" in text or "fast_all(paddi" in text
