"""Small records, so that tests of what is derived from them need no run."""

from __future__ import annotations

from typing import Any

from harness.record.records import (
    Arm,
    Claim,
    Comparison,
    InputSummary,
    Machine,
    Parity,
    Phase,
    RunRecord,
    ScenarioRecord,
    Throughput,
)


def claim(claim_id: str, **changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "id": claim_id,
        "optimization": "packed-metadata",
        "baseline_variant": "per-layer",
        "variant": "cached",
        "scenario": "qwen3-14b-packed-sft",
        "model": "Qwen3-14B",
        "gpu": None,
        "phase": "batch",
        "value": 0.143,
        "configuration": "QLoRA SFT, batch not published",
        "citation": "somewhere",
    }
    return Claim(**fields | changes)


def comparison(arm: str, phase: Phase = "batch", **changes: Any) -> Comparison:
    fields: dict[str, Any] = {
        "arm": arm,
        "baseline": "baseline",
        "phase": phase,
        "speedup": 0.2,
        "low": 0.18,
        "high": 0.22,
        "verdict": "faster",
        "source": "measured",
        "num_blocks": 12,
        "baseline_median_ms": 120.0,
        "arm_median_ms": 100.0,
    }
    return Comparison(**fields | changes)


def parity(arm: str, **changes: Any) -> Parity:
    fields: dict[str, Any] = {
        "arm": arm,
        "baseline": "baseline",
        "quantity": "loss",
        "passed": True,
        "bitwise": True,
        "max_abs_difference": 0.0,
        "max_rel_difference": 0.0,
        "tolerance": 0.0,
        "reason": "the same operations in the same order",
    }
    return Parity(**fields | changes)


def record(**changes: Any) -> RunRecord:
    """One complete CPU run of `packed-metadata` with the published arm and the one beyond."""
    fields: dict[str, Any] = {
        "id": "20260102T030405Z-qwen3-14b-packed-sft-cpu-abc1234",
        "created_utc": "2026-01-02T03:04:05Z",
        "status": "complete",
        "command": "gapless bench",
        "source": "measured",
        "machine": Machine(
            device="cpu",
            fingerprint="f",
            hostname="h",
            platform="Linux x86_64",
            python="3.11.7",
            torch="2.13.0",
            transformers="5.24.0",
            gapless="0.1.0",
            cuda=None,
            cpu_model="CPU",
            num_cpu_cores=2,
            num_threads=2,
            memory_bytes=1 << 34,
            governor=None,
        ),
        "scenario": ScenarioRecord(
            name="qwen3-14b-packed-sft",
            family="packed-sft",
            model="Qwen3-14B",
            fit="narrow",
            dtype="float32",
            attention="sdpa-mask",
            checkpointing=True,
            weights="random",
            adapter="none",
            seed=0,
            config={"num_layers": 40},
            narrowed={"hidden_size": (5120, 64)},
            input=InputSummary(
                data="sample",
                tokenizer="bytes",
                num_batches=4,
                num_tokens=512,
                num_documents_mean=24.0,
                document_tokens_min=4,
                document_tokens_median=20.0,
                document_tokens_p90=40.0,
                document_tokens_max=60,
                padding_share=0.01,
            ),
        ),
        "arms": (
            Arm(name="baseline", variants={"packed-metadata": "per-layer"}, role="baseline"),
            Arm(name="packed-metadata=cached", variants={"packed-metadata": "cached"}),
            Arm(name="packed-metadata=collator", variants={"packed-metadata": "collator"}),
            Arm(name="a/a", variants={"packed-metadata": "per-layer"}, role="a/a"),
        ),
        "comparisons": tuple(
            comparison(arm, phase, speedup=speedup, low=low, high=high, verdict=verdict)
            for phase in ("forward", "batch")
            for arm, speedup, low, high, verdict in (
                ("packed-metadata=cached", 0.2, 0.18, 0.22, "faster"),
                ("packed-metadata=collator", 0.5, 0.45, 0.55, "faster"),
                ("a/a", 0.001, -0.009, 0.011, "same"),
            )
        ),
        "parity": (parity("packed-metadata=cached"), parity("packed-metadata=collator")),
        "throughput": (
            Throughput(arm="baseline", tokens_per_s=1000.0, steps_per_s=2.0, source="measured"),
            Throughput(
                arm="packed-metadata=cached",
                tokens_per_s=1200.0,
                steps_per_s=2.4,
                source="measured",
            ),
        ),
    }
    return RunRecord(**fields | changes)
