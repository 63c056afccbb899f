"""The published rows: complete, consistent with themselves, and about scenarios that exist."""

from __future__ import annotations

import re

import pytest

from gapless.bench_run import applicable
from scenarios.published import CLAIMS, MICROBENCH, claims_for, speedup_of_time_saved
from scenarios.scenario_catalogue import SCENARIOS

VARIANT = re.compile(r"[a-z]+(-[a-z]+)*")


def by_id(claim_id: str):
    return next(claim for claim in CLAIMS if claim.id == claim_id)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_names_a_scenario_that_runs_its_optimization(claim):
    scenario = SCENARIOS[claim.scenario]
    assert claim.optimization in applicable(scenario)
    assert VARIANT.fullmatch(claim.variant)
    assert VARIANT.fullmatch(claim.baseline_variant)
    assert claim.variant != claim.baseline_variant
    assert claim.source == "published"
    assert claim.caveats
    assert claim.citation
    assert claim.value_high is None or claim.value_high > claim.value


def test_ids_are_unique_and_every_claim_is_reachable_from_its_scenario():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    found = [claim for name in SCENARIOS for claim in claims_for(name)]
    assert sorted(claim.id for claim in found) == sorted(claim.id for claim in CLAIMS)


def test_the_rows_are_those_that_were_printed():
    printed = {
        ("Qwen3-14B", "forward"): 43.3,
        ("Qwen3-14B", "backward"): 5.8,
        ("GPT-OSS", "forward"): 23.0,
        ("GPT-OSS", "backward"): 13.0,
    }
    for (model, phase), percent in printed.items():
        (claim,) = [c for c in CLAIMS if c.model == model and c.phase == phase]
        assert claim.value * 100 == pytest.approx(percent)
    batch = {c.id: c.value * 100 for c in CLAIMS if c.phase == "batch"}
    assert batch["metadata-qwen3-14b-batch"] == pytest.approx(14.3)
    assert batch["reload-qwen3-8b-batch"] == pytest.approx(8.40)
    assert batch["reload-qwen3-14b-batch"] == pytest.approx(6.70)
    assert batch["reload-qwen3-32b-batch"] == pytest.approx(4.61)
    overall = by_id("routing-gpt-oss-batch")
    assert (overall.value, overall.value_high) == (0.10, 0.15)


@pytest.mark.parametrize(
    "claim",
    [claim for claim in CLAIMS if claim.baseline_steps_per_s is not None],
    ids=lambda claim: claim.id,
)
def test_percent_and_steps_per_second_agree_within_their_rounding(claim):
    half = 0.5e-4  # the rates are printed to four decimals, the percent to two
    low = (claim.optimized_steps_per_s - half) / (claim.baseline_steps_per_s + half) - 1
    high = (claim.optimized_steps_per_s + half) / (claim.baseline_steps_per_s - half) - 1
    assert low - half <= claim.value <= high + half


@pytest.mark.parametrize(
    "claim",
    [c for c in CLAIMS if c.optimization == "checkpoint-reload" and c.extra_memory_bytes],
    ids=lambda claim: claim.id,
)
def test_extra_memory_is_one_buffer_of_the_scenarios_layer_inputs(claim):
    scenario = SCENARIOS[claim.scenario]
    buffer_bytes = scenario.full_tokens * scenario.facts["hidden_size"] * 2
    assert claim.extra_memory_bytes == pytest.approx(buffer_bytes, abs=0.006 * 2**30)


def test_lower_step_time_is_converted_to_a_speedup():
    assert speedup_of_time_saved(0.5) == pytest.approx(1.0)
    for claim_id, share in [
        ("metadata-llama-3.2-1b-batch", 0.115),
        ("metadata-qwen3-0.6b-batch", 0.148),
    ]:
        claim = by_id(claim_id)
        assert 1 - 1 / (1 + claim.value) == pytest.approx(share)
        assert f"{share:.1%} lower step time" in claim.configuration


def test_the_small_model_rows_are_what_the_micro_benchmark_predicts():
    mask_ms = {time.id: time.duration_ms for time in MICROBENCH}["metadata-mask-build"]
    assert (
        SCENARIOS["llama3.2-1b-packed-sft"].facts["num_hidden_layers"] - 1
    ) * mask_ms == pytest.approx(206, abs=1)
    assert (
        SCENARIOS["qwen3-0.6b-packed-sft"].facts["num_hidden_layers"] - 1
    ) * mask_ms == pytest.approx(370, abs=1)


def test_counter_evidence_is_a_row_of_its_own():
    claim = by_id("reload-llama-3.2-1b-review-batch")
    assert claim.value == pytest.approx(0.004, abs=0.0005)
    assert any("noise" in caveat for caveat in claim.caveats)
