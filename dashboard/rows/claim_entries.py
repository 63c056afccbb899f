"""Claims: each published figure beside what was modelled and measured for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from dashboard.facets import facets_of
from dashboard.rows.listed import Columns
from harness.record.records import Claim, Phase, Record, Source, Verdict
from harness.tables import figures
from harness.tables.claim_rows import claim_row, modelled_speedups, published_text
from harness.tables.run_tables import parity_text, speedup_text
from harness.tables.speaking import (
    by_topic,
    gpu_name,
    has_enough_blocks,
    size_text,
    speaking_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dashboard.facets import Facets
    from harness.record.records import Comparison, RunRecord

Against = Literal["below", "within", "above"]

NO_VERDICT = figures.UNKNOWN


class ClaimEntry(Record, frozen=True, kw_only=True):
    """One figure for one claim: the published one, or what one machine gave."""

    claim: str
    fix: str
    variant: str
    model: str
    phase: Phase
    source: Source
    gpu: str
    size: str = ""
    """`full`, `narrow`, or how many of the layers were run."""
    speedup: float | None
    has_enough_blocks: bool = True
    """For an interval of the stated confidence."""
    low: float | None = None
    """Of the interval; for a published range its lower end."""
    high: float | None = None
    text: str
    """The figure as it is shown everywhere."""
    verdict: Verdict | None = None
    against_published: Against | None = None
    """Where the whole interval lies against the published figure or range."""
    parity: str = figures.UNKNOWN
    parity_passed: bool | None = None
    run: str | None = None
    other_runs: tuple[str, ...] = ()
    """Runs with the same claim, source and GPU that do not speak."""
    as_run: str = ""
    """How it was set up."""
    remarks: tuple[str, ...] = ()
    """For a published figure what does not add up; otherwise why there is no figure."""


def published_claims(records: Sequence[RunRecord]) -> tuple[Claim, ...]:
    """Every claim that the records speak to, by fix as first seen, each once."""
    found = {claim.id: claim for record in reversed(records) for claim in record.claims}
    order = {
        name: n for n, name in enumerate(dict.fromkeys(c.optimization for c in found.values()))
    }
    return tuple(sorted(found.values(), key=lambda claim: order[claim.optimization]))


def claim_entries(records: Sequence[RunRecord]) -> tuple[ClaimEntry, ...]:
    """The entries of these records, newest first; see `spoken_claims`."""
    found = {record.id: record for record in records}
    return spoken_claims(map(facets_of, records), found.get)


def spoken_claims(
    facets: Iterable[Facets], find: Callable[[str], RunRecord | None]
) -> tuple[ClaimEntry, ...]:
    """For each claim the published figure, then modelled and measured ones, one a GPU.

    Which run speaks is told by `harness.tables.speaking`; a GPU modelled in several set-ups answers
    with their range. `facets` are newest first; `find` is asked only for the runs that speak.
    """
    heard = [(one.id, one.claim_voices) for one in facets if one.claim_voices]
    ranked = by_topic(heard)
    first = {runs[0] for runs in ranked.values()}
    speaking = [
        record for run_id, _ in heard if run_id in first and (record := find(run_id)) is not None
    ]
    others: dict[tuple[str, ...], list[str]] = {}
    for topic, runs in ranked.items():
        others.setdefault(topic[:3], []).extend(runs[1:])
    entries: list[ClaimEntry] = []
    for claim in published_claims(speaking):
        entries.append(_published(claim))
        answers = _answers(claim, speaking, others)
        for source in ("modelled", "measured"):
            entries += [entry for entry in answers if entry.source == source]
    return tuple(entries)


def in_words(entries: Sequence[ClaimEntry]) -> str:
    """What a chart of these entries shows, for those who cannot see it."""
    return "; ".join(
        f"{e.model} {e.phase}, {e.source} on {e.gpu}: {e.text}"
        + (f", {e.verdict}" if e.verdict else "")
        for e in entries
    )


def remarks(entries: Sequence[ClaimEntry]) -> tuple[str, ...]:
    """What does not add up in the published figures, each sentence once."""
    return tuple(dict.fromkeys(r for e in entries if e.source == "published" for r in e.remarks))


def against_published(claim: Claim, low: float, high: float) -> Against:
    """`within` where the interval and the published figure or range meet."""
    if high < claim.value:
        return "below"
    if low > (claim.value if claim.value_high is None else claim.value_high):
        return "above"
    return "within"


def _published(claim: Claim) -> ClaimEntry:
    return ClaimEntry(
        claim=claim.id,
        fix=claim.optimization,
        variant=claim.variant,
        model=claim.model,
        phase=claim.phase,
        source="published",
        gpu=claim.gpu or "GPU unnamed",
        speedup=claim.value,
        low=claim.value if claim.value_high is not None else None,
        high=claim.value_high,
        text=published_text(claim),
        as_run=claim.configuration,
        remarks=claim.caveats,
    )


def _answers(
    claim: Claim, records: Sequence[RunRecord], others: Mapping[tuple[str, ...], list[str]]
) -> list[ClaimEntry]:
    by_place: dict[tuple[Source, str], list[RunRecord]] = {}
    for record in speaking_on(claim, records):
        by_place.setdefault((record.source, gpu_name(record)), []).append(record)
    answers = []
    for place, of_place in by_place.items():
        entry = _over_setups(claim, _answer(claim, of_place[0]), of_place)
        spoken = {entry.run}
        if entry.source == "modelled":
            spoken |= {record.id for record, _ in modelled_speedups(claim, of_place)}
        known = dict.fromkeys([*(record.id for record in of_place), *others[(claim.id, *place)]])
        silent = tuple(run for run in known if run not in spoken)
        answers.append(msgspec.structs.replace(entry, other_runs=silent))
    return answers


def _over_setups(claim: Claim, entry: ClaimEntry, records: Sequence[RunRecord]) -> ClaimEntry:
    """The entry over all set-ups that were modelled for its GPU, where there are several."""
    if entry.source != "modelled":
        return entry
    found = [comparison.speedup for _, comparison in modelled_speedups(claim, records)]
    if len(found) < 2:
        return entry
    high, low = found[0], found[-1]
    return msgspec.structs.replace(
        entry,
        low=low,
        high=high,
        text=f"{figures.percent(low)} to {figures.percent(high)}",
        verdict=None,
        against_published=against_published(claim, low, high),
        as_run=f"Modelled in {len(found)} set-ups, as the conditions are not published.",
    )


def _answer(claim: Claim, record: RunRecord) -> ClaimEntry:
    row = claim_row(claim, record)
    found: Comparison | None = row.measured
    return ClaimEntry(
        claim=claim.id,
        fix=claim.optimization,
        variant=claim.variant,
        model=claim.model,
        phase=claim.phase,
        source=record.source,
        gpu=gpu_name(record),
        size=size_text(record),
        speedup=found.speedup if found else None,
        has_enough_blocks=found is None or has_enough_blocks(found),
        low=found.low if found else None,
        high=found.high if found else None,
        text=speedup_text(found) if found else figures.UNKNOWN,
        verdict=found.verdict if found else None,
        against_published=against_published(claim, found.low, found.high) if found else None,
        parity=parity_text(row.parity),
        parity_passed=all(check.passed for check in row.parity) if row.parity else None,
        run=record.id,
        as_run=row.differs[0] if row.differs else "",
        remarks=tuple(filter(None, (row.needs, _cut_short(record) if found else None))),
    )


def _cut_short(record: RunRecord) -> str | None:
    if record.status == "complete":
        return None
    return f"The run is {record.status}: {(record.reason or 'no reason is recorded').rstrip('.')}."


COLUMNS: Columns[ClaimEntry] = Columns(
    {
        "Fix": lambda row: row.fix,
        "Model": lambda row: row.model,
        "Phase": lambda row: row.phase,
        "Source": lambda row: row.source,
        "GPU": lambda row: row.gpu,
        "Size": lambda row: row.size or NO_VERDICT,
        "Speedup": lambda row: row.text,
        "Verdict": lambda row: row.verdict or NO_VERDICT,
        "Against published": lambda row: row.against_published or NO_VERDICT,
        "Parity": lambda row: row.parity,
        "Run": lambda row: row.run or NO_VERDICT,
        "Other runs": lambda row: str(len(row.other_runs)) if row.run else NO_VERDICT,
        "Set-up": lambda row: row.as_run,
        "Remarks": lambda row: " ".join(row.remarks),
    }
)
