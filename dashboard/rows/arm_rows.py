"""A/B: each arm of a run against its baseline, in every phase, with what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.rows.listed import Columns
from harness.record.records import PHASES, Comparison, Phase, Record, Source, Verdict
from harness.stats import block_speedups, compare
from harness.tables import figures
from harness.tables.run_tables import noise_floor, parity_of, parity_text, speedup_text
from harness.tables.speaking import arm_topics, by_topic, gpu_name, has_enough_blocks, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dashboard.facets import Facets
    from harness.record.records import Arm, RunRecord, Sample


class ArmRow(Record, frozen=True, kw_only=True):
    """One arm in one phase of one run."""

    run: str
    scenario: str
    model: str
    fit: str
    """`full`, `narrow`, or how many of the layers were run."""
    num_tokens: int | None = None
    """Tokens in one step."""
    gpu: str
    source: Source
    arm: str
    is_noise: bool = False
    """The baseline a second time."""
    phase: Phase
    speedup: float
    low: float
    high: float
    text: str
    verdict: Verdict
    confidence: float
    num_blocks: int
    has_enough_blocks: bool = True
    """For an interval of the stated confidence."""
    noise_low: float | None = None
    noise_high: float | None = None
    """What the baseline against itself shows in the same run and phase."""
    baseline_ms: float
    arm_ms: float
    parity: str = figures.UNKNOWN
    parity_passed: bool | None = None
    tokens_per_s: float | None = None
    baseline_tokens_per_s: float | None = None
    peak_bytes: int | None = None
    baseline_peak_bytes: int | None = None
    energy_j: float | None = None
    baseline_energy_j: float | None = None

    @property
    def moved(self) -> bool:
        """Whether the verdict says that something changed."""
        return self.verdict in ("faster", "slower")

    @property
    def place(self) -> str:
        """`Qwen3-14B (narrow, 512 tokens) · cpu · measured`."""
        tokens = "" if self.num_tokens is None else f", {self.num_tokens:,} tokens"
        return f"{self.model} ({self.fit}{tokens}) · {self.gpu} · {self.source}"


class Spoken(Record, frozen=True, kw_only=True):
    """The figures that speak for the arms of many runs."""

    rows: tuple[ArmRow, ...]
    num_left_out: int
    """Figures that speak and are beyond the limit."""
    num_others: int
    """Figures of the same arms from other runs."""


def arm_rows(record: RunRecord) -> tuple[ArmRow, ...]:
    """Every comparison of a run, arms in their order, the noise floor last."""
    roles = {arm.name: arm.role for arm in record.arms}
    position = {arm.name: n for n, arm in enumerate(record.arms)}
    ordered = sorted(
        record.comparisons,
        key=lambda c: (
            roles.get(c.arm) == "a/a",
            position.get(c.arm, len(position)),
            PHASES.index(c.phase),
        ),
    )
    return tuple(_row(record, c, is_noise=roles.get(c.arm) == "a/a") for c in ordered)


def _row(record: RunRecord, c: Comparison, *, is_noise: bool) -> ArmRow:
    noise = noise_floor(record, c.phase)
    if noise is not None and not has_enough_blocks(noise):
        noise = None
    checks = parity_of(record, c.arm)
    tokens = {t.arm: t.tokens_per_s for t in record.throughput}
    energy = {e.arm: e.energy_j for e in record.energy}
    return ArmRow(
        run=record.id,
        scenario=record.scenario.name,
        model=record.scenario.model,
        fit=size_text(record),
        num_tokens=record.scenario.input.num_tokens if record.scenario.input else None,
        gpu=gpu_name(record),
        source=c.source,
        arm=c.arm,
        is_noise=is_noise,
        phase=c.phase,
        speedup=c.speedup,
        low=c.low,
        high=c.high,
        text=speedup_text(c),
        verdict=c.verdict,
        confidence=c.confidence,
        num_blocks=c.num_blocks,
        has_enough_blocks=has_enough_blocks(c),
        noise_low=noise.low if noise else None,
        noise_high=noise.high if noise else None,
        baseline_ms=c.baseline_median_ms,
        arm_ms=c.arm_median_ms,
        parity=parity_text(checks),
        parity_passed=all(check.passed for check in checks) if checks else None,
        tokens_per_s=tokens.get(c.arm),
        baseline_tokens_per_s=tokens.get(c.baseline),
        peak_bytes=peak_bytes(record, c.arm, c.phase),
        baseline_peak_bytes=peak_bytes(record, c.baseline, c.phase),
        energy_j=energy.get(c.arm),
        baseline_energy_j=energy.get(c.baseline),
    )


def in_words(rows: Sequence[ArmRow]) -> str:
    """What a chart of these rows shows, for those who cannot see it."""
    return "; ".join(
        f"{r.place}, {r.arm}, {r.phase}: {r.text}, {r.verdict}" for r in rows if not r.is_noise
    )


def spoken(
    facets: Iterable[Facets],
    find: Callable[[str], RunRecord | None],
    *,
    phase: Phase | None = None,
    max_runs: int | None = None,
) -> Spoken:
    """For each arm of each set-up the figure that speaks, in one phase or in all of them.

    `facets` are newest first; `find` is asked only for the runs that speak.
    """
    heard = [
        (one.id, [voice for voice in one.arm_voices if phase in (None, voice.topic[-1])])
        for one in facets
    ]
    ranked = by_topic(heard)
    speakers = list(
        dict.fromkeys(
            run_id
            for run_id, voices in heard
            if any(ranked[voice.topic][0] == run_id for voice in voices)
        )
    )
    rows: list[ArmRow] = []
    for run_id in speakers[:max_runs]:
        record = find(run_id)
        if record is not None:
            topics = arm_topics(record)
            spoken_for = {
                key
                for key, topic in topics.items()
                if topic in ranked and ranked[topic][0] == run_id
            }
            rows += [row for row in arm_rows(record) if (row.arm, row.phase) in spoken_for]
    return Spoken(
        rows=tuple(rows),
        num_left_out=len(ranked) - len(rows),
        num_others=sum(len(runs) - 1 for runs in ranked.values()),
    )


def peak_bytes(record: RunRecord, arm: str, phase: Phase) -> int | None:
    """Highest memory of an arm in a phase, by the most exact count that the run has."""
    for kind in ("cuda-allocator", "tensor-bytes", "modelled", "rss"):
        peaks = [
            peak.peak_bytes
            for peak in record.memory
            if peak.arm == arm and peak.kind == kind and (phase == "batch" or peak.phase == phase)
        ]
        if peaks:
            return max(peaks)
    return None


def strips(
    record: RunRecord, samples: Sequence[Sample]
) -> dict[tuple[str, Phase], tuple[float, ...]]:
    """(arm, phase) -> speedup in each block: what each interval was drawn from."""
    return {
        (c.arm, c.phase): tuple(
            block_speedups(samples, arm=c.arm, baseline=c.baseline, phase=c.phase).values()
        )
        for c in record.comparisons
    }


class StepRow(Record, frozen=True, kw_only=True):
    """What one fix adds: on top of those before it, or to all the others."""

    run: str
    fix: str
    arm: str
    against: str
    phase: Phase
    speedup: float
    low: float
    high: float
    text: str
    verdict: Verdict
    source: Source


def ladder_rows(record: RunRecord, samples: Sequence[Sample], phase: Phase) -> tuple[StepRow, ...]:
    """What each fix adds on top of those before it, where the arms form a ladder."""
    pairs = [
        (added, arm, below)
        for below, arm in _climb(record)
        if (added := _difference(below, arm)) is not None
    ]
    return _steps(record, samples, phase, pairs)


def leave_one_out_rows(
    record: RunRecord, samples: Sequence[Sample], phase: Phase
) -> tuple[StepRow, ...]:
    """What each fix adds to all the others: all of them against all but that one."""
    baseline = _baseline(record)
    if baseline is None:
        return ()
    arms = [arm for arm in record.arms if arm.role == "arm"]
    full = max(arms, key=lambda arm: len(_changes(baseline, arm)), default=None)
    if full is None or len(_changes(baseline, full)) < 2:
        return ()
    pairs = []
    for arm in arms:
        left_out = _difference(arm, full)
        if left_out is not None and arm.variants[left_out] == baseline.variants[left_out]:
            pairs.append((left_out, full, arm))
    return _steps(record, samples, phase, pairs)


def _baseline(record: RunRecord) -> Arm | None:
    return next((arm for arm in record.arms if arm.role == "baseline"), None)


def _changes(baseline: Arm, arm: Arm) -> set[str]:
    return {name for name, value in arm.variants.items() if value != baseline.variants.get(name)}


def _difference(one: Arm, other: Arm) -> str | None:
    """The single optimization in which two arms differ; `None` where it is none or several."""
    if one.variants.keys() != other.variants.keys():
        return None
    names = [name for name in one.variants if one.variants[name] != other.variants[name]]
    return names[0] if len(names) == 1 else None


def _climb(record: RunRecord) -> list[tuple[Arm, Arm]]:
    below = _baseline(record)
    baseline = below
    pairs: list[tuple[Arm, Arm]] = []
    if below is None or baseline is None:
        return pairs
    for size in range(1, len(below.variants) + 1):
        above = next(
            (
                arm
                for arm in record.arms
                if arm.role == "arm"
                and len(_changes(baseline, arm)) == size
                and _difference(below, arm) is not None
            ),
            None,
        )
        if above is None:
            break
        pairs.append((below, above))
        below = above
    return pairs


def _steps(
    record: RunRecord,
    samples: Sequence[Sample],
    phase: Phase,
    pairs: Sequence[tuple[str, Arm, Arm]],
) -> tuple[StepRow, ...]:
    rows = []
    for fix, arm, against in pairs:
        found = compare(
            samples, arm=arm.name, baseline=against.name, phase=phase, source=record.source
        )
        if found is not None:
            rows.append(
                StepRow(
                    run=record.id,
                    fix=fix,
                    arm=arm.name,
                    against=against.name,
                    phase=phase,
                    speedup=found.speedup,
                    low=found.low,
                    high=found.high,
                    text=speedup_text(found),
                    verdict=found.verdict,
                    source=found.source,
                )
            )
    return tuple(rows)


def _pair(baseline: str, arm: str) -> str:
    return f"{baseline} -> {arm}"


COLUMNS: Columns[ArmRow] = Columns(
    {
        "Model": lambda row: f"{row.model} ({row.fit})",
        "GPU": lambda row: row.gpu,
        "Source": lambda row: row.source,
        "Arm": lambda row: f"{row.arm} (noise floor)" if row.is_noise else row.arm,
        "Phase": lambda row: row.phase,
        "Speedup": lambda row: row.text,
        "Verdict": lambda row: row.verdict,
        "Parity": lambda row: row.parity,
        "Time": lambda row: _pair(
            figures.milliseconds(row.baseline_ms), figures.milliseconds(row.arm_ms)
        ),
        "Tokens/s": lambda row: _pair(
            figures.rate(row.baseline_tokens_per_s), figures.rate(row.tokens_per_s)
        ),
        "Peak memory": lambda row: _pair(
            figures.byte_size(row.baseline_peak_bytes), figures.byte_size(row.peak_bytes)
        ),
        "Energy per step": lambda row: _pair(
            figures.joules(row.baseline_energy_j), figures.joules(row.energy_j)
        ),
        "Blocks": lambda row: str(row.num_blocks),
        "Run": lambda row: row.run,
    }
)

STEP_COLUMNS: Columns[StepRow] = Columns(
    {
        "Fix": lambda row: row.fix,
        "Arm": lambda row: row.arm,
        "Against": lambda row: row.against,
        "Phase": lambda row: row.phase,
        "Speedup": lambda row: row.text,
        "Verdict": lambda row: row.verdict,
        "Source": lambda row: row.source,
    }
)
