"""The same figures as text: Markdown for a pull request, CSV, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dashboard.rows import ab, claims
from dashboard.rows.listed import rows_csv
from harness.record.records import SCHEMA_VERSION
from harness.tables import figures
from harness.tables.grid import Table, plain_markdown, to_markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.rows.ab import ArmRow
    from dashboard.rows.claims import ClaimEntry
    from harness.record.records import RunRecord

MARKER = "<!-- gapless report -->"
"""First line of the Markdown: a bot finds its own comment by it and updates it in place."""
MAX_LINES = 30


def markdown_report(records: Sequence[RunRecord], *, everything: bool = False) -> str:
    """Verdict first, then claims, then what moved; at most `MAX_LINES` lines unless asked."""
    entries = claims.claim_entries(records)
    rows = _newest(records)
    lines = [MARKER, "", f"**{plain_markdown(verdict_line(records))}**", ""]
    tables = []
    if entries:
        tables.append(_claims_table(entries))
    moved = [row for row in rows if everything or row.moved or row.parity_passed is False]
    if moved:
        tables.append(_arms_table(moved))
    for table in tables:
        lines += [*to_markdown(table).splitlines(), ""]
    notes = [_noise_line(rows), "Full figures: `gapless dashboard` or `gapless export`."]
    tail = [line for line in notes if line]
    if not everything and len(lines) + len(tail) > MAX_LINES:
        kept = MAX_LINES - len(tail) - 2
        left_out = len(lines) - kept
        lines = [*lines[:kept], "", f"{left_out} more lines: `gapless report --all`."]
    return "\n".join([*lines, *tail]) + "\n"


def verdict_line(records: Sequence[RunRecord]) -> str:
    """One sentence: how many arms are faster, slower, the same, undecided, and parity."""
    rows = [row for row in _newest(records) if row.phase == "batch"]
    if not rows:
        return "No comparison: the store has no run that compares arms."
    words: list[str] = []
    for source in ("measured", "modelled"):
        of_source = [row for row in rows if row.source == source]
        if of_source:
            counts = ", ".join(
                f"{number} {verdict}"
                for verdict in ("faster", "slower", "same", "undecided")
                if (number := sum(row.verdict == verdict for row in of_source))
            )
            words.append(f"{source.capitalize()}: {counts}")
    failed = sum(not check.passed for record in records for check in record.parity)
    parity = f"{failed} parity checks fail" if failed else "parity holds"
    return f"{'; '.join(words)} (whole batch); {parity}."


def csv_report(records: Sequence[RunRecord]) -> str:
    """Every comparison of every run, unrounded."""
    return rows_csv(ab.ArmRow, [row for record in records for row in ab.arm_rows(record)])


def json_report(records: Sequence[RunRecord]) -> str:
    """Claims and comparisons as one document; each row has its figures and its `text`."""
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "verdict": verdict_line(records),
        "claims": claims.claim_entries(records),
        "comparisons": [row for record in records for row in ab.arm_rows(record)],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _newest(records: Sequence[RunRecord]) -> list[ArmRow]:
    rows = [row for record in records for row in ab.arm_rows(record)]
    return [row for row in ab.newest_by_place(rows, len(rows)) if not row.is_noise]


def _claims_table(entries: Sequence[ClaimEntry]) -> Table:
    answers = [entry for entry in entries if entry.source != "published"]
    published = {entry.claim: entry.text for entry in entries if entry.source == "published"}
    return Table(
        columns=("Claim", "Published", "Here", "Source", "Verdict", "Parity"),
        rows=tuple(
            (
                f"{entry.fix}, {entry.model}, {entry.phase}",
                published[entry.claim],
                entry.text,
                f"{entry.source}, {entry.gpu}",
                entry.verdict or figures.UNKNOWN,
                entry.parity,
            )
            for entry in answers
        ),
    )


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
