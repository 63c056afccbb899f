"""Every optimization in every variant on the emulated GPU: how often the host waits in a step."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd.graph import save_on_cpu

from gapless.scenario_audit import audit_scenario
from harness.tables.audit_text import report_text
from optimizations import packed_attention
from scenarios.build_options import BuildOptions
from scenarios.configuration import library_config
from scenarios.scenario_catalogue import get
from scenarios.sizes import num_experts

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport

LAYERS, TOKENS = 3, 1024
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="covered by the GPU tests")


def audit(scenario: str, arm: str | None, mode: Any = "values", **options: Any) -> AuditReport:
    built = BuildOptions.from_mapping(
        {"num_layers": LAYERS, "tokens": 64, "documents": 4, **options}
    )
    return audit_scenario(get(scenario), built, arm=arm, mode=mode)


def syncs(report: AuditReport, code: str = "") -> dict[str, float]:
    phases: dict[str, float] = {}
    for site in report.sites:
        if code in (site.code or "") and site.syncs_per_call:
            waits = site.count_per_step * site.syncs_per_call
            phases[site.phase] = phases.get(site.phase, 0) + waits
    return phases


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("scenario", ["qwen3-8b-packed-sft", "llama3.2-1b-packed-sft"])
@pytest.mark.parametrize(
    ("variant", "attention", "expected"),
    [
        # The longest document, then size and lengths of the mask: in each layer, and recomputed.
        ("per-layer", "sdpa-mask", {"forward": 3 * LAYERS, "recompute": 3 * LAYERS}),
        ("cached", "sdpa-mask", {"forward": 3}),
        ("collator", "sdpa-mask", {}),
        ("per-layer", "varlen", {"forward": LAYERS, "recompute": LAYERS}),
        ("cached", "varlen", {"forward": 1}),
        ("collator", "varlen", {}),
    ],
)
def test_packed_metadata(
    scenario: str, variant: str, attention: str, expected: dict[str, float], mode: Any
) -> None:
    report = audit(scenario, f"packed-metadata={variant}", mode, attention=attention)
    assert syncs(report) == expected, report_text(report)


def test_the_varlen_kernel_is_not_looked_up_again_in_each_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [0]
    has_flash_attn = packed_attention.has_flash_attn

    def counting() -> bool:
        asked[-1] += 1
        return has_flash_attn()

    monkeypatch.setattr(packed_attention, "has_flash_attn", counting)
    for num_layers in (1, 3):
        asked.append(0)
        audit(
            "qwen3-8b-packed-sft",
            "packed-metadata=collator",
            "shapes",
            attention="varlen",
            num_layers=num_layers,
        )
    assert asked[1] == asked[2] > 0


def test_without_checkpointing_nothing_is_recomputed() -> None:
    report = audit("qwen3-8b-packed-sft", "packed-metadata=per-layer", checkpointing=False)
    assert syncs(report) == {"forward": 3 * LAYERS}


@pytest.mark.parametrize("scenario", ["qwen3-8b-packed-sft", "llama3.2-1b-packed-sft"])
@pytest.mark.parametrize(
    ("variant", "offloads", "reloads"),
    [
        ("plain", 0, 0),
        # The last layer's input is on the device still when its backward begins.
        ("single-buffer", LAYERS - 1, LAYERS - 1),
        ("double-buffer", LAYERS - 1, LAYERS - 1),
        ("prefetch", LAYERS - 1, LAYERS - 2),
        ("save-on-cpu", LAYERS, LAYERS),
    ],
)
def test_checkpoint_reload_copies_layer_inputs_and_waits_on_streams_only(
    scenario: str, variant: str, offloads: int, reloads: int
) -> None:
    if variant == "save-on-cpu" and ".copy_(tensor)" in inspect.getsource(save_on_cpu):
        pytest.skip("this torch waits for each copy to the host, pinned or not, as 2.10 does")
    arm = f"packed-metadata=collator,checkpoint-reload={variant}"
    report = audit(scenario, arm, "shapes", fit="full", tokens=TOKENS)
    assert syncs(report) == {}, report_text(report)
    assert all(copy.blocking is False and copy.memory == "pinned" for copy in report.copies)
    bytes_of = {copy.direction: copy.bytes_per_step for copy in report.copies}
    layer_input = TOKENS * get(scenario).facts["hidden_size"] * 2
    assert bytes_of.get("d2h", 0) == offloads * layer_input
    # Beside the reloads there is the batch: a few tokens' worth of integers.
    assert 0 <= (bytes_of["h2d"] or 0) - reloads * layer_input <= TOKENS * 40


@pytest.mark.parametrize("variant", ["where-loop", "argsort", "device-offsets", "grouped_mm"])
@pytest.mark.parametrize("scenario", ["gpt-oss-20b", "qwen3-30b-a3b"])
def test_moe_routing(scenario: str, variant: str) -> None:
    report = audit(scenario, f"moe-routing={variant}")
    experts = num_experts(library_config(get(scenario).facts))
    assert experts is not None
    # `bincount` reads its extremes on CUDA, then the counts are read.
    per_pass = {"where-loop": experts, "argsort": 3, "device-offsets": 0, "grouped_mm": 0}
    routed = {
        phase: sum(
            site.count_per_step * site.syncs_per_call
            for site in report.sites
            if site.phase == phase and "experts" in (site.module or "")
        )
        for phase in ("forward", "recompute", "backward", "optimizer")
    }
    expected = float(LAYERS * per_pass[variant])
    assert routed == {
        "forward": expected, "recompute": expected, "backward": 0, "optimizer": 0
    }, report_text(report)  # fmt: skip


def test_growth_is_said_in_the_form_people_quote() -> None:
    report = audit_scenario(
        get("gpt-oss-20b"),
        BuildOptions(num_layers=LAYERS, tokens=64, documents=4),
        arm="moe-routing=where-loop",
        scale="experts",
    )
    assert {site.growth for site in report.sites if "experts" in (site.module or "")} == {"L*E_hit"}
    assert "2*L*E_hit" in report.notes[0]
