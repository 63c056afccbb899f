"""The same figures as text: Markdown for a pull request, CSV, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboard.facets import facets_of
from dashboard.rows import arm_rows, claim_entries
from dashboard.rows.listed import rows_csv
from harness.boundary.foreign_text import json_text
from harness.counts import counted
from harness.record.records import SCHEMA_VERSION
from harness.tables import figures
from harness.tables.grid import Table, plain_markdown, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dashboard.rows.arm_rows import ArmRow
    from dashboard.rows.claim_entries import ClaimEntry
    from harness.record.records import RunRecord

MARKER = "<!-- gapless report -->"
"""First line of the Markdown: a bot finds its own comment by it and updates it in place."""
MAX_LINES = 30
VERDICTS = ("faster", "slower", "same", "undecided")


def markdown_report(records: Sequence[RunRecord], *, everything: bool = False) -> str:
    """One row a claim, then the arms that moved; at most `MAX_LINES` lines unless asked, of which
    the claims are never cut."""
    entries = claim_entries.claim_entries(records)
    rows = _spoken(records)
    lines = [MARKER, "", f"**{plain_markdown(verdict_line(records))}**", ""]
    if entries:
        lines += [*to_markdown(_claims_table(entries)).splitlines(), ""]
    moved = [row for row in rows if everything or row.moved or row.parity_passed is False]
    tail = [_noise_line(rows), "Full figures: `gapless dashboard` or `gapless export`."]
    tail = [line for line in tail if line]
    if moved:
        room = None if everything else MAX_LINES - len(lines) - len(tail) - 5
        lines += _arm_lines(moved, len(rows), room)
    return "\n".join([*lines, *tail]) + "\n"


def verdict_line(records: Sequence[RunRecord]) -> str:
    """One sentence: how the claims came out, or without claims the arms, and parity."""
    entries = claim_entries.claim_entries(records)
    rows = [row for row in _spoken(records) if row.phase == "batch"]
    if not rows and not entries:
        return "No comparison: the store has no run that compares arms."
    if entries:
        by_claim = _by_claim(entries)
        measured = [_outcome(_best(answers, "measured")) for answers in by_claim.values()]
        words = f"{counted(len(by_claim), 'published claim')}, measured: {_tally(measured)}"
    else:
        words = f"{counted(len(rows), 'arm')} in the whole batch: " + _tally(
            [f"{row.verdict} ({row.source})" for row in rows]
        )
    failed = sum(not check.passed for record in records for check in record.parity)
    checks = sum(len(record.parity) for record in records)
    parity = "parity holds" if checks else "parity was not checked"
    if failed:
        parity = f"{counted(failed, 'parity check')} {'fails' if failed == 1 else 'fail'}"
    return f"{words}; {parity}."


def csv_report(records: Sequence[RunRecord]) -> str:
    """Every comparison of every run, unrounded."""
    rows = [row for record in records for row in arm_rows.arm_rows(record)]
    return rows_csv(arm_rows.ArmRow, rows)


def json_report(records: Sequence[RunRecord]) -> str:
    """Claims and comparisons as one document; each row has its figures and its `text`."""
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "verdict": verdict_line(records),
        "claims": claim_entries.claim_entries(records),
        "comparisons": [row for record in records for row in arm_rows.arm_rows(record)],
    }
    return json_text(document)


def _spoken(records: Sequence[RunRecord]) -> tuple[ArmRow, ...]:
    found = {record.id: record for record in records}
    return arm_rows.spoken(map(facets_of, records), found.get).rows


def _tally(words: Sequence[str]) -> str:
    """`4 faster, 1 undecided`: known verdicts first, each with its number."""
    order = sorted(dict.fromkeys(words), key=lambda word: (*_position(word), word))
    return ", ".join(f"{words.count(word)} {word}" for word in order)


def _position(word: str) -> tuple[int]:
    verdict = word.split(" ", 1)[0]
    return (VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS),)


def _by_claim(entries: Iterable[ClaimEntry]) -> dict[str, list[ClaimEntry]]:
    found: dict[str, list[ClaimEntry]] = {}
    for entry in entries:
        found.setdefault(entry.claim, []).append(entry)
    return found


def _best(answers: Sequence[ClaimEntry], source: str) -> ClaimEntry | None:
    """The first answer of this source that has a figure; answers of several GPUs are ranked."""
    of_source = [entry for entry in answers if entry.source == source]
    return next((entry for entry in of_source if entry.speedup is not None), None) or next(
        iter(of_source), None
    )


def _outcome(entry: ClaimEntry | None) -> str:
    if entry is None:
        return "not measured"
    return "without a figure" if entry.speedup is None else str(entry.verdict)


def _claims_table(entries: Sequence[ClaimEntry]) -> Table:
    """One row a claim: published, modelled and measured, each on the GPU that speaks first."""
    rows = []
    for answers in _by_claim(entries).values():
        published = answers[0]
        measured = _best(answers, "measured")
        rows.append(
            (
                f"{published.fix}, {published.model}, {published.phase}",
                published.text,
                _cell(answers, "modelled"),
                _cell(answers, "measured"),
                (measured.verdict if measured else None) or figures.UNKNOWN,
                (measured.against_published if measured else None) or figures.UNKNOWN,
                measured.parity if measured else figures.UNKNOWN,
            )
        )
    columns = ("Claim", "Published", "Modelled", "Measured", "Verdict", "Against it", "Parity")
    return Table(columns=columns, rows=tuple(rows))


def _cell(answers: Sequence[ClaimEntry], source: str) -> str:
    """`+8.4% [+7.9%, +8.9%], cpu`, and how many GPUs say something besides."""
    entry = _best(answers, source)
    if entry is None:
        return figures.UNKNOWN
    if entry.speedup is None:
        return f"no figure, {entry.gpu}"
    part = f" ({entry.size})" if "layers" in entry.size else ""
    more = sum(other.source == source for other in answers) - 1
    others = f" and {counted(more, 'more GPU')}" if more else ""
    return f"{entry.text}, {entry.gpu}{part}{others}"


def _arm_lines(moved: Sequence[ArmRow], number: int, room: int | None) -> list[str]:
    """What moved, as a table below how many rows it has of how many there are."""
    first = sorted(
        moved,
        key=lambda row: (
            row.parity_passed is not False,
            row.source != "measured",
            row.phase != "batch",
        ),
    )
    shown = first if room is None else first[: max(room, 0)]
    about = f"{counted(len(moved), 'figure')} of arms moved or fail parity, of {number:,}"
    if room is None:
        about = f"{counted(len(moved), 'figure')} of arms"
    if len(shown) < len(moved):
        about += f"; {len(shown)} of them here, all with `gapless report --all`"
    table = to_markdown(_arms_table(shown)).splitlines() if shown else []
    return [f"{about}.", "", *([*table, ""] if table else [])]


def _arms_table(rows: Sequence[ArmRow]) -> Table:
    return Table(
        columns=("Arm", "Phase", "Speedup", "Verdict", "Parity", "Where"),
        rows=tuple(
            (row.arm, row.phase, row.text, row.verdict, row.parity, row.place) for row in rows
        ),
    )


def _noise_line(rows: Sequence[ArmRow]) -> str:
    floors = [
        (row.noise_low, row.noise_high)
        for row in rows
        if row.phase == "batch" and row.noise_low is not None and row.noise_high is not None
    ]
    if not floors:
        return ""
    low, high = min(low for low, _ in floors), max(high for _, high in floors)
    return f"Noise floor, the baseline against itself: {figures.speedup_range(low, high)}."
