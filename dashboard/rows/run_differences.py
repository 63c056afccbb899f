"""Several runs against one base: in what they differ, and, where they compare, what moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.rows.arm_rows import arm_rows
from dashboard.rows.listed import Columns
from harness.record.records import Phase, Record
from harness.tables import figures
from harness.tables.speaking import gpu_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.rows.arm_rows import ArmRow
    from harness.record.records import RunRecord

CLOCK_TOLERANCE = 0.05
"""Highest SM clocks further apart than this make two runs incomparable."""


class DifferenceRow(Record, frozen=True, kw_only=True):
    """One fact in which a run differs from the base, so that their figures do not compare."""

    run: str
    base: str
    fact: str
    base_value: str
    value: str


class AcrossRow(Record, frozen=True, kw_only=True):
    """One arm and phase of one run beside the same arm and phase of a base it compares with."""

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


def across_rows(base: RunRecord, others: Sequence[RunRecord]) -> tuple[AcrossRow, ...]:
    """Rows for every arm and phase that a run shares with the base; none for a run that differs
    from it in more than its arms (see `differences`)."""
    of_base = {(row.arm, row.phase): row for row in arm_rows(base) if not row.is_noise}
    return tuple(
        _row(of_base[row.arm, row.phase], row)
        for run in others
        if run.id != base.id and not differences(base, run)
        for row in arm_rows(run)
        if (row.arm, row.phase) in of_base
    )


def _row(mine: ArmRow, other: ArmRow) -> AcrossRow:
    return AcrossRow(
        run=other.run,
        base=mine.run,
        arm=other.arm,
        phase=other.phase,
        base_speedup=mine.speedup,
        base_text=mine.text,
        speedup=other.speedup,
        text=other.text,
        moved=other.high < mine.low or other.low > mine.high,
    )


def differences(base: RunRecord, run: RunRecord) -> tuple[DifferenceRow, ...]:
    """Everything but the arms in which two runs differ and that moves a figure by itself."""
    one, other = _facts(base), _facts(run)
    found = [
        (name, one.get(name, "none"), other.get(name, "none"))
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]
    if not found and base.machine.fingerprint != run.machine.fingerprint:
        found.append(("machine", base.machine.fingerprint, run.machine.fingerprint))
    mine_mhz, theirs_mhz = base.steadiness.sm_clock_max_mhz, run.steadiness.sm_clock_max_mhz
    if mine_mhz and theirs_mhz:
        apart = abs(mine_mhz - theirs_mhz) / max(mine_mhz, theirs_mhz)
        if apart > CLOCK_TOLERANCE:
            found.append(("highest SM clock", f"{mine_mhz:.0f} MHz", f"{theirs_mhz:.0f} MHz"))
    return tuple(
        DifferenceRow(run=run.id, base=base.id, fact=name, base_value=mine, value=theirs)
        for name, mine, theirs in found
    )


def _facts(record: RunRecord) -> dict[str, str]:
    machine, scenario = record.machine, record.scenario
    gpu = machine.gpus[0] if machine.gpus else None
    tokens = scenario.input
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
        "model": scenario.model,
        "fit": scenario.fit,
        "dtype": scenario.dtype,
        "attention": scenario.attention,
        "checkpointing": "on" if scenario.checkpointing else "off",
        "adapter": scenario.adapter,
        **{f"size {name}": str(value) for name, value in scenario.config.items()},
        "tokens in a step": f"{tokens.num_tokens:,}" if tokens else figures.UNKNOWN,
        "documents in a step": f"{tokens.num_documents_mean:.0f}" if tokens else figures.UNKNOWN,
        "throttling": ", ".join(record.steadiness.throttle_reasons) or "none",
    }


DIFFERENCE_COLUMNS: Columns[DifferenceRow] = Columns(
    {
        "Run": lambda row: row.run,
        "Fact": lambda row: row.fact,
        "Base": lambda row: row.base_value,
        "This run": lambda row: row.value,
    }
)
COLUMNS: Columns[AcrossRow] = Columns(
    {
        "Run": lambda row: row.run,
        "Arm": lambda row: row.arm,
        "Phase": lambda row: row.phase,
        "Base": lambda row: row.base_text,
        "This run": lambda row: row.text,
        "Moved": lambda row: "yes" if row.moved else "no",
    }
)
