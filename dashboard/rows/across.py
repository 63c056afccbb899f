"""Several runs against one base: what moved, and whether the two may be compared at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dashboard.facets import gpu_name
from dashboard.rows.ab import arm_rows
from dashboard.rows.listed import Columns
from harness.record.records import Phase, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.rows.ab import ArmRow
    from harness.record.records import RunRecord

CLOCK_TOLERANCE = 0.05
"""Highest SM clocks further apart than this make two runs incomparable."""


class AcrossRow(Record, frozen=True, kw_only=True):
    """One arm and phase of one run beside the same arm and phase of the base."""

    run: str
    base: str
    arm: str
    phase: Phase
    base_speedup: float
    base_text: str
    speedup: float
    text: str
    moved: bool
    """The two intervals do not meet."""
    differences: tuple[str, ...]
    """Why the two runs are not comparable, `torch: 2.11.0 -> 2.13.0`; empty where they are."""


def across_rows(base: RunRecord, others: Sequence[RunRecord]) -> tuple[AcrossRow, ...]:
    """Rows for every arm and phase that a run shares with the base."""
    of_base = {(row.arm, row.phase): row for row in arm_rows(base) if not row.is_noise}
    return tuple(
        _row(of_base[row.arm, row.phase], row, base, run, differences(base, run))
        for run in others
        if run.id != base.id
        for row in arm_rows(run)
        if (row.arm, row.phase) in of_base
    )


def _row(
    mine: ArmRow, other: ArmRow, base: RunRecord, run: RunRecord, differs: tuple[str, ...]
) -> AcrossRow:
    return AcrossRow(
        run=run.id,
        base=base.id,
        arm=other.arm,
        phase=other.phase,
        base_speedup=mine.speedup,
        base_text=mine.text,
        speedup=other.speedup,
        text=other.text,
        moved=other.high < mine.low or other.low > mine.high,
        differences=differs,
    )


def differences(base: RunRecord, run: RunRecord) -> tuple[str, ...]:
    """Everything but the arms in which two runs differ and that moves a figure by itself."""
    facts = zip(_facts(base).items(), _facts(run).values(), strict=True)
    found = [f"{name}: {one} -> {other}" for (name, one), other in facts if one != other]
    if not found and base.machine.fingerprint != run.machine.fingerprint:
        found.append("machine: another fingerprint of hardware and versions")
    one, other = base.steadiness.sm_clock_max_mhz, run.steadiness.sm_clock_max_mhz
    if one and other and abs(one - other) / max(one, other) > CLOCK_TOLERANCE:
        found.append(f"highest SM clock: {one:.0f} MHz -> {other:.0f} MHz")
    throttled = (base.steadiness.throttle_reasons, run.steadiness.throttle_reasons)
    if throttled[0] != throttled[1]:
        found.append(f"throttling: {' -> '.join(', '.join(r) or 'none' for r in throttled)}")
    return tuple(found)


def _facts(record: RunRecord) -> dict[str, str]:
    machine, scenario = record.machine, record.scenario
    gpu = machine.gpus[0] if machine.gpus else None
    config = msgspec.json.encode(scenario.config, order="sorted").decode()
    return {
        "source": record.source,
        "GPU": gpu_name(record),
        "driver": (gpu.driver if gpu else None) or "none",
        "power limit": f"{gpu.power_limit_w:g} W" if gpu and gpu.power_limit_w else "unknown",
        "CPU": f"{machine.cpu_model}, {machine.num_cpu_cores} cores",
        "threads": str(machine.num_threads),
        "python": machine.python,
        "torch": machine.torch,
        "CUDA": machine.cuda or "none",
        "transformers": machine.transformers or "none",
        "scenario": scenario.name,
        "fit": scenario.fit,
        "dtype": scenario.dtype,
        "attention": scenario.attention,
        "adapter": scenario.adapter,
        "sizes": config,
        "tokens in a step": str(scenario.input.num_tokens if scenario.input else "unknown"),
    }


COLUMNS: Columns[AcrossRow] = Columns(
    {
        "Run": lambda row: row.run,
        "Arm": lambda row: row.arm,
        "Phase": lambda row: row.phase,
        "Base": lambda row: row.base_text,
        "This run": lambda row: row.text,
        "Moved": lambda row: "yes" if row.moved else "no",
        "Comparable": lambda row: "no" if row.differences else "yes",
        "Differences": lambda row: "; ".join(row.differences),
    }
)
