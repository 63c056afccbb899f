"""Records made up for tests. Every one says `synthetic`; none is ever shipped as a result."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from harness.record.attachments import ArmAudit
from harness.record.audit_report import AuditReport, RedundantGroup, Site
from harness.record.records import (
    PHASES,
    Arm,
    Claim,
    Energy,
    Gpu,
    InputSummary,
    Machine,
    MemoryPeak,
    Overlap,
    Parity,
    RunRecord,
    Sample,
    ScenarioRecord,
    Steadiness,
    SyncCount,
)
from harness.record.sync_kinds import SyncKind
from harness.stats import compare_all, throughput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import Source
    from harness.record.store import Store

FIXES = {
    "packed-metadata": ("per-layer", "cached"),
    "checkpoint-reload": ("single-buffer", "double-buffer"),
    "moe-routing": ("where", "argsort"),
}
ARMS = (
    Arm(name="baseline", variants={n: v[0] for n, v in FIXES.items()}, role="baseline"),
    Arm(
        name="packed-metadata=cached",
        variants={
            "packed-metadata": "cached",
            "checkpoint-reload": "single-buffer",
            "moe-routing": "where",
        },
    ),
    Arm(
        name="packed-metadata=cached,checkpoint-reload=double-buffer",
        variants={
            "packed-metadata": "cached",
            "checkpoint-reload": "double-buffer",
            "moe-routing": "where",
        },
    ),
    Arm(name="all", variants={n: v[1] for n, v in FIXES.items()}),
    Arm(name="a/a", variants={n: v[0] for n, v in FIXES.items()}, role="a/a"),
)
SPEED = {
    "baseline": 1.0,
    "a/a": 1.0,
    "packed-metadata=cached": 0.88,
    "packed-metadata=cached,checkpoint-reload=double-buffer": 0.82,
    "all": 0.7,
}


def claims(scenario: str = "synthetic-packed", model: str = "Synthetic-14B") -> tuple[Claim, ...]:
    """One claim for each fix, one of them a range."""
    return tuple(
        Claim(
            id=f"synthetic-{fix}-{model}",
            optimization=fix,
            baseline_variant=variants[0],
            variant=variants[1],
            scenario=scenario,
            model=model,
            gpu="B200" if fix == "checkpoint-reload" else None,
            phase="batch",
            value=value,
            value_high=high,
            configuration="Made up for a test.",
            caveats=("The figures of this made-up claim do not add up.",),
            citation="nowhere",
        )
        for (fix, variants), value, high in zip(
            FIXES.items(), (0.143, 0.084, 0.10), (None, None, 0.15), strict=True
        )
    )


def machine(source: Source = "measured", gpu: str | None = None) -> Machine:
    device = "cpu" if gpu is None else gpu.lower().replace(" ", "-")
    return Machine(
        device=f"emulated-{device}" if source == "modelled" else device,
        fingerprint=f"synthetic-{device}",
        hostname="synthetic-host",
        platform="Linux x86_64",
        python="3.11.7",
        torch="2.13.0",
        transformers="5.24.0",
        gapless="0.1.0",
        cuda="13.0" if gpu else None,
        cpu_model="Synthetic CPU",
        num_cpu_cores=2,
        num_threads=2,
        memory_bytes=1 << 34,
        governor=None,
        gpus=(Gpu(name=gpu, memory_bytes=180 << 30, driver="600.1"),) if gpu else (),
    )


def samples(seed: int = 0, num_blocks: int = 10, arms: Sequence[Arm] = ARMS) -> list[Sample]:
    """One warm-up block and then every arm and phase in each block, with 1 % of noise."""
    noise = random.Random(seed)
    share = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1, "batch": 1.0}
    taken = []
    for block in range(-1, num_blocks):
        for arm in arms:
            for phase in PHASES:
                duration = 300 * share[phase] * SPEED.get(arm.name, 0.9) * noise.gauss(1, 0.01)
                taken.append(
                    Sample(
                        order=len(taken),
                        block=block,
                        arm=arm.name,
                        phase=phase,
                        duration_ms=duration,
                        warmup=block < 0,
                    )
                )
    return taken


def record(
    number: int = 0,
    *,
    source: Source = "measured",
    gpu: str | None = None,
    model: str = "Synthetic-14B",
    num_parameters: int = 14_800_000_000,
    taken: Sequence[Sample] | None = None,
    **changes: Any,
) -> RunRecord:
    """A complete run of every arm; `number` makes the id and the time of day."""
    used = machine(source, gpu)
    taken = samples(number) if taken is None else taken
    day, second = divmod(number, 86_400)
    hour, minute = second // 3600, second // 60 % 60
    stamp = f"2026-01-{day + 2:02d}T{hour:02d}:{minute:02d}:{second % 60:02d}Z"
    fields: dict[str, Any] = {
        "id": f"{stamp.replace('-', '').replace(':', '')}-synthetic-{used.device}-{number:06x}",
        "created_utc": stamp,
        "status": "complete",
        "command": "gapless bench synthetic-packed --ladder",
        "source": source,
        "machine": used,
        "scenario": ScenarioRecord(
            name="synthetic-packed",
            family="packed-sft",
            model=model,
            fit="narrow",
            dtype="float32",
            attention="sdpa-mask",
            checkpointing=True,
            weights="random",
            adapter="none",
            seed=0,
            config={"num_layers": 40, "hidden_size": 64},
            narrowed={"hidden_size": (5120, 64)},
            num_parameters=num_parameters,
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
        "arms": ARMS,
        "comparisons": compare_all(taken, ARMS, source=source),
        "parity": tuple(
            Parity(
                arm=arm.name,
                baseline="baseline",
                quantity=quantity,
                passed=True,
                bitwise=quantity == "loss",
                max_abs_difference=0.0,
                max_rel_difference=0.0 if quantity == "loss" else 1.2e-5,
                tolerance=1e-4,
                reason="the order of additions differs",
                num_compared=12,
            )
            for arm in ARMS[1:4]
            for quantity in ("loss", "gradients")
        ),
        "memory": tuple(
            MemoryPeak(
                arm=arm.name, phase="batch", kind="tensor-bytes", peak_bytes=size, source=source
            )
            for arm, size in zip(ARMS, (400_000_000,) * 2 + (420_000_000,) * 3, strict=True)
        ),
        "throughput": throughput(taken, ARMS, 512, source),
        "energy": tuple(
            Energy(arm=arm.name, energy_j=120 * SPEED[arm.name], source=source)
            for arm in ARMS
            if gpu
        ),
        "syncs": tuple(
            SyncCount(
                arm=arm,
                phase="batch",
                count=count,
                source="modelled",
                method="emulated",
                exposed_ms=count / 10,
            )
            for arm, count in (("baseline", 160.0), ("packed-metadata=cached", 2.0))
        ),
        "overlap": (
            Overlap(arm="baseline", overlap=0.1, copy_ms=12.0, idle_ms=8.0, source=source),
        ),
        "steadiness": Steadiness(load_before=0.1, load_after=0.2, cpu_others_share=0.01),
        "claims": claims(model=model),
        "duration_s": 42.0,
        "notes": ("Synthetic.",),
    }
    return RunRecord(**fields | changes)


def audit(arm: str, count: float) -> ArmAudit:
    """A report with one site that differs between arms and one that does not."""
    report = AuditReport(
        source="emulated",
        target="synthetic",
        device="emulated H100 (shapes only)",
        steps=1,
        syncs_per_step=count + 1,
        sites=(
            Site(
                op="aten::_local_scalar_dense",
                kind=SyncKind.SCALAR_READ,
                phase="forward",
                count_per_step=count,
                syncs_per_call=1,
                file="/home/someone/src/packing.py",
                line=41,
                code="int(lengths.max().item())",
                function="max_length",
                module="model.layers.*.self_attn",
                exposed_ms=count / 10,
                growth="L",
                remedy="Make it once in the collator.",
            ),
            Site(
                op="aten::nonzero",
                kind=SyncKind.DYNAMIC_OUTPUT_SIZE,
                phase="forward",
                count_per_step=1,
                syncs_per_call=1,
                file="/home/someone/src/loss.py",
                line=9,
                module="model.loss",
            ),
        ),
        redundant_groups=(
            RedundantGroup(
                size=40,
                first="packing.py:40",
                repeats=("packing.py:40",),
                ops=("aten::cumsum", "aten::max"),
                syncs=39,
                module="model.layers.*.self_attn",
            ),
        ),
    )
    return ArmAudit(arm=arm, report=report)


AUDITS = (audit("baseline", 159.0), audit("packed-metadata=cached", 1.0))


def write(store: Store, made: RunRecord, **beside: Any) -> RunRecord:
    """Write a run with the samples that its comparisons come from."""
    return store.write(made, samples(int(made.id.rsplit("-", 1)[1], 16)), **beside)
