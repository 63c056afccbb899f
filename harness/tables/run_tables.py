"""One run as tables: its comparisons by arm and phase, and what each arm computes and uses."""

from __future__ import annotations

from harness.counts import counted
from harness.record.records import PHASES, Comparison, MemoryPeak, Parity, RunRecord
from harness.tables import figures
from harness.tables.grid import Table
from harness.tables.speaking import size_text


def headline(record: RunRecord) -> str:
    """What ran where, in one line that says how its figures came about."""
    scenario, machine = record.scenario, record.machine
    gpu = machine.gpus[0].name if machine.gpus else None
    place = gpu or f"{machine.cpu_model}, {counted(machine.num_threads, 'thread')}"
    if record.source == "modelled":
        place = machine.device
    return (
        f"{scenario.name}: {scenario.model} ({size_text(record)}), {scenario.dtype}, "
        f"{scenario.attention}, {record.source} on {place}, torch {machine.torch}"
    )


def run_tables(record: RunRecord) -> tuple[Table, ...]:
    """Comparisons first, then parity, throughput, memory, syncs and energy by arm."""
    return (_comparisons(record), _arms(record))


def parity_of(record: RunRecord, arm: str) -> tuple[Parity, ...]:
    """Every parity check of this arm."""
    return tuple(check for check in record.parity if check.arm == arm)


def parity_text(checks: tuple[Parity, ...]) -> str:
    """`bitwise`, `within 1.2e-05`, `failed (loss)`, or a dash where nothing was checked."""
    if not checks:
        return figures.UNKNOWN
    failed = [check.quantity for check in checks if not check.passed]
    if failed:
        return f"failed ({', '.join(failed)})"
    if all(check.bitwise for check in checks):
        return "bitwise"
    return f"within {max(check.max_rel_difference or 0.0 for check in checks):.1e}"


def speedup_text(comparison: Comparison) -> str:
    """`+8.4% [+7.9%, +8.9%]`; one measured block has no interval, and says so.

    A modelled clock repeats itself exactly: its one block is all there is to know.
    """
    if comparison.num_blocks < 2:
        text = figures.percent(comparison.speedup)
        return f"{text} (one block)" if comparison.source == "measured" else text
    interval = figures.speedup_range(comparison.low, comparison.high)
    return f"{figures.percent(comparison.speedup)} {interval}"


def noise_floor(record: RunRecord, phase: str) -> Comparison | None:
    """The baseline against itself in this phase, where the run has an A/A arm."""
    twins = {arm.name for arm in record.arms if arm.role == "a/a"}
    for comparison in record.comparisons:
        if comparison.arm in twins and comparison.phase == phase:
            return comparison
    return None


def _comparisons(record: RunRecord) -> Table:
    roles = {arm.name: arm.role for arm in record.arms}
    order = {arm.name: position for position, arm in enumerate(record.arms)}
    rows = [
        (
            f"{c.arm} (noise floor)" if roles.get(c.arm) == "a/a" else c.arm,
            c.phase,
            figures.milliseconds(c.baseline_median_ms),
            figures.milliseconds(c.arm_median_ms),
            speedup_text(c),
            c.verdict,
            figures.percent(c.minimum_detectable, signed=False),
            str(c.num_blocks),
        )
        for c in sorted(
            record.comparisons,
            key=lambda c: (
                roles.get(c.arm) == "a/a",
                order.get(c.arm, len(order)),
                PHASES.index(c.phase),
            ),
        )
    ]
    return Table(
        columns=(
            "Arm",
            "Phase",
            "Baseline",
            "This arm",
            "Speedup [interval]",
            "Verdict",
            "Smallest detectable",
            "Blocks",
        ),
        rows=tuple(rows),
        title=headline(record),
    )


def _arms(record: RunRecord) -> Table:
    throughput = {t.arm: t.tokens_per_s for t in record.throughput}
    energy = {e.arm: e.energy_j for e in record.energy}
    rows = [
        (
            arm.name,
            "" if arm.role == "baseline" else parity_text(parity_of(record, arm.name)),
            figures.rate(throughput.get(arm.name)),
            _peak_text([m for m in record.memory if m.arm == arm.name]),
            _syncs_text(record, arm.name),
            figures.joules(energy.get(arm.name)),
        )
        for arm in record.arms
        if arm.role != "a/a"
    ]
    columns = ("Arm", "Parity", "Tokens/s", "Peak memory", "Syncs per step", "Energy per step")
    return Table(columns=columns, rows=tuple(rows))


def _peak_text(peaks: list[MemoryPeak]) -> str:
    """The allocator's peak where there is one, tensor bytes otherwise, the process last."""
    for kind in ("cuda-allocator", "tensor-bytes", "modelled", "rss"):
        of_kind = [peak.peak_bytes for peak in peaks if peak.kind == kind]
        if of_kind:
            return f"{figures.byte_size(max(of_kind))} ({kind})"
    return figures.UNKNOWN


def _syncs_text(record: RunRecord, arm: str) -> str:
    counts = [count for count in record.syncs if count.arm == arm]
    whole = [count for count in counts if count.phase == "batch"] or counts
    if not whole:
        return figures.UNKNOWN
    by_rules = " (emulated)" if whole[0].method == "emulated" else ""
    return f"{sum(count.count for count in whole):g}{by_rules}"
