"""Published claims beside the records that speak to them: one row a claim. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness.counts import counted
from harness.record.records import Claim, Comparison, Parity, Record, RunRecord
from harness.tables import figures
from harness.tables.dominance import what_dominates
from harness.tables.grid import Notes, Table
from harness.tables.run_tables import noise_floor, parity_of, parity_text, speedup_text
from harness.tables.speaking import (
    claimed_arm,
    claimed_comparison,
    gpu_name,
    speaking_on,
    standing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ReproduceRow(Record, frozen=True, kw_only=True):
    """One published claim beside what was measured here."""

    claim: Claim
    run: str | None = None
    """Id of the record that the measured figures come from."""
    measured: Comparison | None = None
    beyond: Comparison | None = None
    """The variant that goes beyond the published one, against the same baseline."""
    noise: Comparison | None = None
    """The baseline against itself in the same run and phase."""
    parity: tuple[Parity, ...] = ()
    baseline_tokens_per_s: float | None = None
    tokens_per_s: float | None = None
    modelled: Comparison | None = None
    """The same comparison by the virtual clock, at the real size on `modelled_gpu`; where several
    set-ups were modelled, the one that gains most."""
    modelled_low: float | None = None
    """The smallest gain of several set-ups that what is published allows; `None` where one was
    modelled."""
    modelled_gpu: str | None = None
    """All GPUs that were modelled, with commas between."""
    modelled_run: str | None = None
    dominates: str | None = None
    """What decides the modelled comparison, in one sentence."""
    differs: tuple[str, ...] = ()
    """How this run was set up, and what is known of the published set-up."""
    needs: str | None = None
    """Why there is no figure, and what would give one."""


def rows_from_records(
    claims: Sequence[Claim],
    records: Sequence[RunRecord],
    *,
    needs: Mapping[str, str] | None = None,
    modelled: Sequence[RunRecord] = (),
) -> tuple[ReproduceRow, ...]:
    """One row a claim, from the record that speaks on it (see `harness.tables.speaking`).

    `modelled` are records of the virtual clock at the real size; each row takes those that speak
    to its claim as well.

    `needs` has, for ids of claims without a record, a sentence that says why there is none.
    """
    rows = []
    for claim in claims:
        speaking = speaking_on(claim, records)
        if speaking:
            row = claim_row(claim, speaking[0])
        else:
            unasked = f"Not measured; needs `gapless reproduce --only {claim.id}`."
            row = ReproduceRow(claim=claim, needs=(needs or {}).get(claim.id, unasked))
        rows.append(_with_model(row, modelled))
    return tuple(rows)


def modelled_speedups(
    claim: Claim, records: Sequence[RunRecord]
) -> tuple[tuple[RunRecord, Comparison], ...]:
    """The first record of each set-up that speaks to the claim, the largest gain first.

    More than one where the conditions of the claim are not published, so that each way to fill them
    in was modelled; all of them have the real layers where any has. `records` are newest first.
    """
    found: dict[bytes, tuple[RunRecord, Comparison]] = {}
    for record in speaking_on(claim, records):
        comparison = claimed_comparison(claim, record)
        if comparison is not None:
            setup = (record.machine.device, record.scenario)
            found.setdefault(msgspec.json.encode(setup, order="sorted"), (record, comparison))
    if not found:
        return ()
    sizes = [standing(*pair)[:3] for pair in found.values()]
    kept = [pair for pair, size in zip(found.values(), sizes, strict=True) if size == max(sizes)]
    return tuple(sorted(kept, key=lambda pair: -pair[1].speedup))


def _with_model(row: ReproduceRow, modelled: Sequence[RunRecord]) -> ReproduceRow:
    found = modelled_speedups(row.claim, modelled)
    if not found:
        return row
    record, most = found[0]
    gpus = dict.fromkeys(gpu_name(record) for record, _ in found)
    dominates = what_dominates(row.claim, record)
    if dominates and len(found) > 1:
        dominates = f"At the upper end of what was modelled: {dominates}"
    return msgspec.structs.replace(
        row,
        modelled=most,
        modelled_low=found[-1][1].speedup if len(found) > 1 else None,
        modelled_gpu=", ".join(gpus),
        modelled_run=record.id,
        dominates=dominates,
    )


def claim_row(claim: Claim, record: RunRecord) -> ReproduceRow:
    """This claim beside what this record holds on it."""
    arm = claimed_arm(claim, record)
    beyond = _beyond_arm(record, claim)
    measured = claimed_comparison(claim, record)
    parity = parity_of(record, arm) if arm else ()
    tokens_per_s = {t.arm: t.tokens_per_s for t in record.throughput}
    baseline = next((a.name for a in record.arms if a.role == "baseline"), "")
    return ReproduceRow(
        claim=claim,
        run=record.id,
        measured=measured,
        beyond=_comparison(record, beyond, claim),
        noise=noise_floor(record, claim.phase),
        parity=parity,
        baseline_tokens_per_s=tokens_per_s.get(baseline),
        tokens_per_s=tokens_per_s.get(arm) if arm else None,
        differs=setup_difference(claim, record),
        needs=None if measured else _why_not(record, parity),
    )


def _beyond_arm(record: RunRecord, claim: Claim) -> str | None:
    published = {other.variant for other in record.claims}
    for arm in record.arms:
        variant = arm.variants.get(claim.optimization)
        if arm.role == "arm" and variant not in published:
            return arm.name
    return None


def _comparison(record: RunRecord, arm: str | None, claim: Claim) -> Comparison | None:
    for comparison in record.comparisons:
        if comparison.arm == arm and comparison.phase == claim.phase:
            return comparison
    return None


def _why_not(record: RunRecord, parity: tuple[Parity, ...]) -> str:
    failed = next((check for check in parity if not check.passed), None)
    if failed:
        return f"No speedup counts, because parity of {failed.quantity} failed: {failed.reason}"
    reason = record.reason or "the run ended before this arm was timed"
    return f"Not measured: {reason.rstrip('.')}."


def setup_difference(claim: Claim, record: RunRecord) -> tuple[str, str]:
    """How this run was set up, and what is known of the published set-up: a sentence each."""
    scenario, machine = record.scenario, record.machine
    threads = counted(machine.num_threads, "thread")
    place = machine.gpus[0].name if machine.gpus else f"CPU, {threads}"
    if record.source == "modelled":
        place = f"modelled {machine.device}"
    trained = "all weights trained" if scenario.adapter == "none" else scenario.adapter
    parts = [scenario.model, place, f"{scenario.dtype}, {scenario.attention} attention, {trained}"]
    if scenario.input is not None:
        tokens = counted(scenario.input.num_tokens, "token")
        documents = counted(round(scenario.input.num_documents_mean), "document")
        parts.append(f"{tokens} in {documents} a step")
    if scenario.narrowed:
        changes = ", ".join(f"{n} {a:,} -> {b:,}" for n, (a, b) in scenario.narrowed.items())
        parts.append(f"narrowed: {changes}")
    return f"Here: {'; '.join(parts)}.", f"Published: {claim.configuration}"


def reproduce_table(rows: Sequence[ReproduceRow]) -> Table:
    """The rows for people: published beside measured, never mixed; remarks as numbered notes."""
    notes = Notes()
    cells = []
    for row in rows:
        claim = row.claim
        several = _SEVERAL_SETUPS if row.modelled_low is not None else None
        leading = filter(None, (row.needs, several, row.dominates))
        remarks = (*leading, *row.differs, *claim.caveats)
        noise = row.noise
        cells.append(
            (
                claim.optimization,
                claim.model,
                claim.phase,
                published_text(claim) + (f" ({claim.gpu})" if claim.gpu else ""),
                _modelled_text(row),
                speedup_text(row.measured) if row.measured else figures.UNKNOWN,
                row.measured.verdict if row.measured else figures.UNKNOWN,
                parity_text(row.parity),
                speedup_text(row.beyond) if row.beyond else figures.UNKNOWN,
                _half_width(noise) if noise else figures.UNKNOWN,
                _rates(row),
                notes.refer(remarks),
            )
        )
    return Table(
        columns=(
            "Fix",
            "Model",
            "Phase",
            "Published",
            "Modelled there",
            "Measured here",
            "Verdict",
            "Parity",
            "Going beyond",
            "Noise floor",
            "Tokens/s",
            "Notes",
        ),
        rows=tuple(cells),
        notes=tuple(notes.sentences),
    )


def published_text(claim: Claim) -> str:
    """`+8.4%`, or `+10.0% to +15.0%` where a range was published."""
    if claim.value_high is None:
        return figures.percent(claim.value)
    return f"{figures.percent(claim.value)} to {figures.percent(claim.value_high)}"


def _modelled_text(row: ReproduceRow) -> str:
    if row.modelled is None:
        return figures.UNKNOWN
    most = figures.percent(row.modelled.speedup)
    low = "" if row.modelled_low is None else f"{figures.percent(row.modelled_low)} to "
    return f"{low}{most} ({row.modelled_gpu})"


def _rates(row: ReproduceRow) -> str:
    if row.measured is None:
        return figures.UNKNOWN
    return f"{figures.rate(row.baseline_tokens_per_s)} -> {figures.rate(row.tokens_per_s)}"


_SEVERAL_SETUPS = (
    "Modelled is a range: the conditions were not published, and each end holds for one way to "
    "fill them in; docs/model-validation.md lists them."
)


def _half_width(noise: Comparison) -> str:
    """Largest distance from 0 in the interval of an A/A comparison, `+-1.1%`."""
    return f"+-{figures.percent(max(abs(noise.low), abs(noise.high)), signed=False)}"
