"""Small models of the families in the scenarios, as stock transformers builds them, for auditing.

Shape and path through the library are those of the published models; only the sizes are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.audit.emulated.emulated_audit import audit_callable
from harness.findings.answering import with_answers
from optimizations.optimization_catalogue import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.audit.emulated.emulated_audit import Mode
    from harness.audit.growth import Sizes
    from harness.record.audit_report import AuditReport

Batch = Literal["plain", "padded", "packed"]

TOKENS, VOCABULARY = 64, 128
DENSE, SPARSE = ("Llama", "Qwen3"), ("Mixtral", "Qwen3Moe", "GptOss")
BATCHES: tuple[Batch, ...] = ("plain", "padded", "packed")


class Setting(NamedTuple):
    """One way to train one model."""

    family: str
    """Name of the transformers classes: `Qwen3Moe` stands for `Qwen3MoeConfig` and so on."""
    attention: str
    experts: str | None
    batch: Batch


def settings() -> Iterator[Setting]:
    """Dense models with each attention and batch; sparse ones with each experts implementation."""
    for family in DENSE:
        for attention in ("eager", "sdpa", "flash_attention_2"):
            for batch in BATCHES:
                yield Setting(family, attention, None, batch)
    for family in SPARSE:
        attention = "eager" if family == "GptOss" else "sdpa"
        for experts in ("eager", "batched_mm", "grouped_mm"):
            yield Setting(family, attention, experts, "plain")


def audit_setting(setting: Setting, sizes: Sizes, mode: Mode = "values") -> AuditReport:
    """One training step with activation checkpointing, on an emulated H100."""
    report = audit_callable(
        lambda: _build(setting, sizes),
        build=True,
        mode=mode,
        target=" ".join(map(str, setting)),
    )
    return with_answers(report, answers())


def _build(setting: Setting, sizes: Sizes) -> Callable[[], None]:
    import torch

    torch.manual_seed(0)
    model = _model(setting, sizes)
    inputs = _batch(setting.batch)

    def step() -> None:
        model(**inputs).loss.backward()
        model.zero_grad()

    return step


def _model(setting: Setting, sizes: Sizes) -> Any:
    import torch
    import transformers

    more: dict[str, Any] = {}
    if sizes.experts is not None:
        key = "num_experts" if setting.family == "Qwen3Moe" else "num_local_experts"
        more = {key: sizes.experts, "num_experts_per_tok": 2}
    if setting.family == "Qwen3Moe":
        more["moe_intermediate_size"] = 32
    config = getattr(transformers, f"{setting.family}Config")(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_hidden_layers=sizes.layers, use_cache=False, **more,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=setting.attention, dtype=torch.bfloat16
    )
    if setting.experts is not None:
        model.set_experts_implementation(setting.experts)
    model.activation_checkpointing_enable({"use_reentrant": False})
    return model.to("cuda").train()


def _batch(batch: Batch) -> dict[str, Any]:
    import torch

    ids = torch.randint(0, VOCABULARY, (1, TOKENS), device="cuda")
    inputs = {"input_ids": ids, "labels": ids}
    if batch == "padded":
        mask = torch.ones(1, TOKENS, dtype=torch.long)
        mask[0, : TOKENS // 4] = 0
        inputs["attention_mask"] = mask.to("cuda")
    if batch == "packed":
        half = torch.arange(TOKENS // 2)
        inputs["position_ids"] = torch.cat([half, half])[None].to("cuda")
    return inputs
