"""What if: modelled speedups over GPUs and model sizes. Nothing here was measured."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

from dashboard.rows.arm_rows import ArmRow, arm_rows
from dashboard.rows.listed import Columns
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import Phase, RunRecord, ScenarioRecord


class WhatIfRow(ArmRow, frozen=True, kw_only=True):
    """One arm of one modelled run."""

    num_parameters: int | None
    setup: str
    """Tokens, documents, attention and recompute of the step."""

    @property
    def size(self) -> str:
        """`Qwen3-14B, 14.8 B parameters`."""
        if self.num_parameters is None:
            return self.model
        return f"{self.model}, {figures.parameter_count(self.num_parameters)} parameters"


def whatif_rows(records: Sequence[RunRecord]) -> tuple[WhatIfRow, ...]:
    """Every arm as it was modelled last at each size, set-up and GPU, smallest model first.

    `records` are newest first.
    """
    newest: dict[tuple[str, str, str, str, Phase], WhatIfRow] = {}
    for record in records:
        if record.source == "modelled":
            for row in _rows(record):
                newest.setdefault((row.size, row.gpu, row.setup, row.arm, row.phase), row)
    return tuple(
        sorted(
            newest.values(), key=lambda r: (r.num_parameters or 0, r.model, r.gpu, r.arm, r.setup)
        )
    )


def setup_of(scenario: ScenarioRecord) -> str:
    """`2,048 tokens, 252 documents, varlen attention, recompute`, as far as it is known."""
    parts = []
    if scenario.input is not None:
        parts.append(f"{scenario.input.num_tokens:,} tokens")
        parts.append(f"{scenario.input.num_documents_mean:.3g} documents")
    parts.append(f"{scenario.attention} attention")
    parts.append("recompute" if scenario.checkpointing else "no recompute")
    return ", ".join(parts)


def _rows(record: RunRecord) -> list[WhatIfRow]:
    scenario = record.scenario
    extra: dict[str, Any] = {"num_parameters": scenario.num_parameters, "setup": setup_of(scenario)}
    rows = [row for row in arm_rows(record) if not row.is_noise]
    return [WhatIfRow(**msgspec.structs.asdict(row), **extra) for row in rows]


def gpus_by_speed(rows: Sequence[WhatIfRow]) -> tuple[str, ...]:
    """GPUs from the slowest to the fastest, by their baseline time on what they share.

    Each time counts as its ratio to the middle of all GPUs that ran the same arm in the same step;
    what only one GPU ran says nothing.
    """
    logs: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        if row.phase == "batch":
            logs.setdefault((row.size, row.setup, row.arm), {})[row.gpu] = math.log(row.baseline_ms)
    slowness: dict[str, list[float]] = {row.gpu: [] for row in rows}
    for times in logs.values():
        for gpu, value in times.items():
            slowness[gpu].append(value - fmean(times.values()))
    return tuple(sorted(slowness, key=lambda gpu: -fmean(slowness[gpu] or [0.0])))


COLUMNS: Columns[WhatIfRow] = Columns(
    {
        "GPU": lambda row: row.gpu,
        "Model": lambda row: row.size,
        "Set-up": lambda row: row.setup,
        "Arm": lambda row: row.arm,
        "Phase": lambda row: row.phase,
        "Modelled speedup": lambda row: row.text,
        "Verdict": lambda row: row.verdict,
        "Baseline": lambda row: figures.milliseconds(row.baseline_ms),
        "This arm": lambda row: figures.milliseconds(row.arm_ms),
        "Run": lambda row: row.run,
    }
)
