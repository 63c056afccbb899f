"""Run: one run whole, as tables of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.rows.listed import Columns
from harness.tables import figures
from harness.tables.grid import Table
from harness.tables.speaking import gpu_name, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import Parity, Phase, RunRecord, Sample

MAX_DRAWN_SAMPLES = 4_000
"""More points are thinned evenly: the order stays visible and the page stays quick."""


def main_phase(samples: Sequence[Sample]) -> Phase:
    """The phase that a run is first looked at by: the whole batch where it was timed."""
    timed = {sample.phase for sample in samples}
    return "batch" if "batch" in timed or not timed else samples[0].phase


def thinned(
    samples: Sequence[Sample], phase: Phase, limit: int = MAX_DRAWN_SAMPLES
) -> Sequence[Sample]:
    """Samples of one phase in the order they were taken, evenly thinned to about `limit`."""
    chosen = [sample for sample in samples if sample.phase == phase]
    return chosen[:: max(1, -(-len(chosen) // limit))]


def environment_table(record: RunRecord) -> Table:
    """Where and how it ran, and how steady the machine was."""
    machine, scenario, steady = record.machine, record.scenario, record.steadiness
    gpus = ", ".join(
        f"{gpu.name}, {figures.byte_size(gpu.memory_bytes)}, driver {gpu.driver or 'unknown'}"
        for gpu in machine.gpus
    )
    narrowed = ", ".join(f"{n} {a:,} -> {b:,}" for n, (a, b) in scenario.narrowed.items())
    tokens = scenario.input
    rows = (
        ("Status", record.status),
        ("Source of its figures", record.source),
        ("Started", record.created_utc),
        ("Duration", figures.seconds(record.duration_s)),
        ("Host", machine.hostname),
        ("Device", f"{machine.device}: {gpu_name(record)}"),
        ("GPU", gpus or "none"),
        ("CPU", f"{machine.cpu_model}, {machine.num_cpu_cores} cores, {machine.num_threads} used"),
        ("Memory", figures.byte_size(machine.memory_bytes)),
        ("Platform", f"{machine.platform}, python {machine.python}"),
        ("torch", f"{machine.torch}, CUDA {machine.cuda or 'none'}"),
        ("transformers", machine.transformers or "none"),
        ("gapless", machine.gapless),
        ("Governor", machine.governor or "unknown"),
        ("Scenario", f"{scenario.name} ({scenario.family})"),
        ("Model", f"{scenario.model}, {size_text(record)}, {scenario.dtype}, {scenario.attention}"),
        ("Parameters", figures.parameter_count(scenario.num_parameters)),
        ("Checkpointing", "on" if scenario.checkpointing else "off"),
        ("Adapter and weights", f"{scenario.adapter}, {scenario.weights}, seed {scenario.seed}"),
        ("Sizes", ", ".join(f"{name} {value}" for name, value in scenario.config.items())),
        ("Narrowed", narrowed or "nothing"),
        (
            "Input",
            f"{tokens.num_tokens:,} tokens a step in {tokens.num_documents_mean:.0f} documents, "
            f"{figures.percent(tokens.padding_share, signed=False)} padding, from {tokens.data}"
            if tokens
            else figures.UNKNOWN,
        ),
        ("Load before, after", f"{_load(steady.load_before)}, {_load(steady.load_after)} a core"),
        (
            "Stolen, other processes",
            (
                f"{figures.percent(steady.cpu_steal_share, signed=False)}, "
                f"{figures.percent(steady.cpu_others_share, signed=False)} of the CPU"
            ),
        ),
        (
            "SM clock",
            f"{_unit(steady.sm_clock_min_mhz, 'MHz')} to {_unit(steady.sm_clock_max_mhz, 'MHz')}",
        ),
        ("Hottest, mean power", _heat(record)),
        ("Throttling", ", ".join(steady.throttle_reasons) or "none seen"),
    )
    return Table(columns=("Fact", "Value"), rows=rows)


def _heat(record: RunRecord) -> str:
    steady = record.steadiness
    return f"{_unit(steady.temperature_max_c, 'C')}, {_unit(steady.power_mean_w, 'W')}"


def _load(value: float | None) -> str:
    return figures.UNKNOWN if value is None else f"{value:.2f}"


def _unit(value: float | None, unit: str) -> str:
    return figures.UNKNOWN if value is None else f"{value:.0f} {unit}"


PARITY_COLUMNS: Columns[Parity] = Columns(
    {
        "Arm": lambda check: check.arm,
        "Quantity": lambda check: check.quantity,
        "Passed": lambda check: "yes" if check.passed else "no",
        "Bitwise": lambda check: "yes" if check.bitwise else "no",
        "Largest relative difference": lambda check: figures.difference(check.max_rel_difference),
        "Allowed": lambda check: figures.difference(check.tolerance),
        "Compared": lambda check: str(check.num_compared),
        "Worst": lambda check: check.worst or figures.UNKNOWN,
        "Why": lambda check: check.reason,
    }
)
