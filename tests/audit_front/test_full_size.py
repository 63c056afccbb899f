"""Models at their real size, on shapes, in the ways transformers computes attention and experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.audit.emulated.emulated_audit import audit_callable
from scenarios.configuration import changed, library_config
from scenarios.narrow import resize
from scenarios.scenario_catalogue import SCENARIOS, get
from scenarios.sizes import num_experts

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport

ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
EXPERTS = ("eager", "batched_mm", "grouped_mm")

# transformers asks for a compiled block mask in the old way.
pytestmark = pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask")


def audit(
    scenario: str,
    attention: str,
    experts: str | None = None,
    *,
    num_layers: int | None = None,
    num_tokens: int = 1024,
    reentrant: bool | None = None,
) -> AuditReport:
    """Forward and backward of two packed documents; `reentrant` of `None` is no checkpointing."""
    facts = get(scenario).facts
    published = library_config(facts)
    fewer = resize(facts, published, layers=num_layers, experts=None, hidden_size=None)

    def build() -> Any:
        config = library_config(changed(facts, published, fewer))
        chosen = {} if experts is None else {"experts_implementation": experts}
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch.bfloat16, attn_implementation=attention, **chosen
            )
        model.train()
        if reentrant is not None:
            # The library renamed it; the older name warns where the newer one exists.
            enable = getattr(model, "activation_checkpointing_enable", None)
            (enable or model.gradient_checkpointing_enable)({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        half = torch.arange(num_tokens // 2, device="cuda")
        positions = torch.cat([half, half])[None]

        def step() -> None:
            ids = torch.randint(0, 1000, (1, num_tokens), device="cuda")
            model(input_ids=ids, position_ids=positions).logits.sum().backward()
            model.zero_grad()

        return step

    return audit_callable(build, build=True, mode="shapes")


def in_layers(report: AuditReport, module: str) -> dict[str, float]:
    phases: dict[str, float] = {}
    for site in report.sites:
        if module in (site.module or ""):
            waits = site.count_per_step * site.syncs_per_call
            phases[site.phase] = phases.get(site.phase, 0) + waits
    return phases


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.parametrize("attention", ATTENTION)
def test_attention_of_a_packed_row(attention: str, reentrant: bool | None) -> None:
    layers = 2
    report = audit("qwen3-32b-packed-sft", attention, num_layers=layers, reentrant=reentrant)
    expected: dict[str, float] = {}
    if attention.startswith("flash"):
        # Is it packed, where documents begin, an upload, and two lengths that a kernel needs.
        expected = {"forward": 5.0 * layers, "backward": 2.0 * layers}
        if reentrant is not None:
            expected["recompute"] = 5.0 * layers
    assert in_layers(report, "self_attn") == expected


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize(
    "scenario",
    [
        "gpt-oss-20b",
        pytest.param("gpt-oss-120b", marks=pytest.mark.slow),
        pytest.param("qwen3-30b-a3b", marks=pytest.mark.slow),
    ],
)
def test_experts(scenario: str, experts: str) -> None:
    layers = 1
    report = audit(scenario, "eager", experts, num_layers=layers, num_tokens=512)
    reads = in_layers(report, "experts").get("forward", 0)
    if experts == "eager":
        in_layer = num_experts(library_config(get(scenario).facts))
        assert in_layer is not None
        # One read of which experts are hit, then several for each.
        assert (reads - layers) % in_layer == 0
        assert reads > in_layer
    else:
        assert reads == 0


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_every_model_at_full_depth(scenario: str) -> None:
    config = library_config(get(scenario).facts)
    experts = None if num_experts(config) is None else "grouped_mm"
    attention = "eager" if scenario.startswith("gpt-oss") else "flash_attention_2"
    report = audit(scenario, attention, experts, num_tokens=2048, reentrant=False)
    layers = config.num_hidden_layers
    assert report.values == "shapes"
    expected = 5.0 * layers if attention.startswith("flash") else None
    assert in_layers(report, "self_attn").get("recompute") == expected
