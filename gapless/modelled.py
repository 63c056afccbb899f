"""Plans and carries out modelled runs: the bench as it is, on GPUs that only the emulator has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.bench_run import carry_out, make_plan
from harness.clock.gpus import find_gpu
from harness.errors import UsageError
from harness.tables import figures
from harness.tables.grid import Table
from scenarios.build_options import BuildOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.bench.child_events import Progress
    from harness.bench.interrupts import Interrupts
    from harness.record.records import Arm, Claim, Phase, RunRecord
    from scenarios.scenario_catalogue import Scenario

SWEPT = {
    "tokens": "tokens",
    "documents": "documents",
    "layers": "num_layers",
    "experts": "num_experts",
}
"""What `--sweep` may vary -> the build option."""

_ABOUT_EXPOSED = (
    "Exposed is the time in which the device idles because the host waits for it. Copies that "
    "nothing runs beside cost time of their own, which is not in it: Overlap tells which share of "
    "the copy time is hidden under compute."
)
_TIME_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Point:
    """One modelled run of a sweep: a GPU and the options that differ."""

    gpu: str
    varied: Mapping[str, int]


def model_scenario(
    scenario: Scenario,
    arms: Sequence[Arm],
    gpu: str,
    options: Mapping[str, Any],
    *,
    store: str | None,
    keep_timelines: bool = True,
    claims: Sequence[Claim] = (),
    command: str = "",
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
) -> RunRecord:
    """The record of one modelled run of these arms on the emulated `gpu`.

    Every arm takes one timed step: the clock repeats itself exactly, so more of them would only
    repeat it. Pass `interrupts` to learn of a Ctrl-C afterwards. Raises `UsageError` for an unknown
    GPU or option.
    """
    key = find_gpu(gpu).key
    plan = make_plan(
        scenario,
        arms,
        BuildOptions.from_mapping({**options, "device": f"emulated:{key}"}),
        budget_s=_TIME_LIMIT_S,
        min_blocks=1,
        max_blocks=1,
        warmup_steps=2,
        measure_parity=False,
        measure_energy=False,
        keep_timelines=keep_timelines,
        claims=tuple(claims),
        command=command,
    )
    return carry_out(
        msgspec.structs.replace(plan, arms=tuple(arms)),
        store=store,
        on_progress=on_progress,
        interrupts=interrupts,
    )


def parse_sweep(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`tokens=2k..64k` as powers of two from 2,048 to 65,536, `documents=8,32` as listed.

    Raises `UsageError` for another form.
    """
    swept: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if name not in SWEPT or not equals:
            raise UsageError(
                f"--sweep {text} is not understood; write NAME=LOW..HIGH or NAME=A,B,C with NAME "
                f"one of {', '.join(SWEPT)}."
            )
        if name in swept:
            raise UsageError(f"--sweep {name} is given twice; write its values in one.")
        low, dots, high = values.partition("..")
        try:
            if dots:
                swept[name] = _doublings(_number(low), _number(high))
            else:
                swept[name] = tuple(_number(value) for value in values.split(","))
        except ValueError:
            raise UsageError(
                f"--sweep {text}: {values!r} is no range; write 2k..64k, 1..512 or 8,32,128."
            ) from None
    return swept


def points(gpus: Sequence[str], swept: Mapping[str, Sequence[int]]) -> tuple[Point, ...]:
    """Every GPU with every combination of the swept options."""
    combinations: list[dict[str, int]] = [{}]
    for name, values in swept.items():
        combinations = [{**chosen, name: value} for chosen in combinations for value in values]
    return tuple(Point(gpu, chosen) for gpu in gpus for chosen in combinations)


def model_flops(record: RunRecord) -> float | None:
    """FLOPs that one step of the model needs: 6 a parameter and token, 4 where an adapter trains.

    Parameters of experts that no token visits do not count, and neither do input embeddings, which
    are looked up, nor what checkpointing computes again. `None` where the record lacks the sizes.
    """
    scenario = record.scenario
    if scenario.num_parameters is None or scenario.input is None:
        return None
    config = scenario.config
    active = float(scenario.num_parameters)
    words, hidden = config.get("vocab_size"), config.get("hidden_size")
    # Tied to the head they are counted once, for the head.
    if not config.get("tie_word_embeddings") and isinstance(words, int) and isinstance(hidden, int):
        active -= words * hidden
    experts, chosen = config.get("num_experts"), config.get("num_experts_per_token")
    if isinstance(experts, int) and isinstance(chosen, int):
        width = config.get("moe_intermediate_size", config.get("intermediate_size"))
        layers = config.get("num_sparse_layers", config.get("num_layers"))
        if isinstance(width, int) and isinstance(layers, int) and isinstance(hidden, int):
            active -= 3 * width * hidden * layers * (experts - chosen)
    passes = 6 if scenario.adapter == "none" else 4
    return passes * active * scenario.input.num_tokens


def modelled_table(runs: Sequence[tuple[Point, RunRecord]]) -> Table:
    """Step time by phase, rate, MFU, exposed time, overlap and memory, a row an arm and GPU."""
    rows = []
    for point, record in runs:
        varied = ", ".join(f"{name} {value:,}" for name, value in point.varied.items())
        if record.status == "failed":
            rows.append((point.gpu, varied, record.reason or "failed", *[figures.UNKNOWN] * 10))
            continue
        rows.extend(
            (point.gpu, varied, arm.name, *_arm_cells(record, arm.name, point.gpu))
            for arm in record.arms
        )
    return Table(
        columns=(
            "GPU",
            "Swept",
            "Arm",
            "Forward",
            "Backward",
            "Optimizer",
            "Step",
            "Gain",
            "Tokens/s",
            "MFU",
            "Syncs",
            "Exposed",
            "Overlap",
            "Peak memory",
        ),
        rows=tuple(_padded(row) for row in rows),
        title="Modelled by the virtual clock, not measured",
        notes=(_ABOUT_EXPOSED,),
    )


def _padded(row: tuple[str, ...]) -> tuple[str, ...]:
    return (*row, *[figures.UNKNOWN] * 14)[:14]


def _arm_cells(record: RunRecord, arm: str, gpu: str) -> tuple[str, ...]:
    phases: tuple[Phase, ...] = ("forward", "backward", "optimizer", "batch")
    times = [phase_ms(record, arm, phase) for phase in phases]
    step_ms = times[-1]
    gain = next(
        (c.speedup for c in record.comparisons if c.arm == arm and c.phase == "batch"), None
    )
    rate = next((t.tokens_per_s for t in record.throughput if t.arm == arm), None)
    syncs = next((s for s in record.syncs if s.arm == arm and s.phase == "batch"), None)
    overlap = next((o.overlap for o in record.overlap if o.arm == arm), None)
    peaks = [peak.peak_bytes for peak in record.memory if peak.arm == arm]
    flops = model_flops(record)
    peak_rate = find_gpu(gpu).tflops.get(record.scenario.dtype)
    mfu = flops / (step_ms / 1e3) / (peak_rate * 1e12) if flops and step_ms and peak_rate else None
    return (
        *(figures.milliseconds(time) for time in times),
        figures.percent(gain),
        figures.rate(rate),
        figures.percent(mfu, signed=False),
        figures.count(syncs.count if syncs else None),
        figures.milliseconds(syncs.exposed_ms if syncs else None),
        figures.percent(overlap, signed=False),
        figures.byte_size(max(peaks, default=None)),
    )


def phase_ms(record: RunRecord, arm: str, phase: Phase) -> float | None:
    """Modelled time of one phase of one arm."""
    for comparison in record.comparisons:
        if comparison.phase == phase:
            if comparison.baseline == arm:
                return comparison.baseline_median_ms
            if comparison.arm == arm:
                return comparison.arm_median_ms
    return None


def _number(text: str) -> int:
    """`2048` or `2k`."""
    text = text.strip().lower()
    value = int(text[:-1]) * 1024 if text.endswith("k") else int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _doublings(low: int, high: int) -> tuple[int, ...]:
    if high < low:
        raise ValueError(f"{low}..{high}")
    values = [low]
    while values[-1] * 2 <= high:
        values.append(values[-1] * 2)
    return tuple(values)
