"""Claims: do the published gains hold?"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from dashboard.charts.claim_chart import claims_chart
from dashboard.charts.style import VERDICT_MARK, encodings_used
from dashboard.contents.blocks import (
    Badges,
    Columns,
    Details,
    Head,
    Heading,
    Links,
    Text,
    chart,
    grid,
    nothing,
)
from dashboard.facets import run_titles
from dashboard.rows import claim_entries
from dashboard.rows.claim_entries import ClaimEntry
from dashboard.rows.listed import rows_csv
from harness.counts import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dashboard.contents.blocks import Block, Tone
    from dashboard.facets import Facets
    from dashboard.filters import Filters
    from dashboard.snapshot import Snapshot
    from harness.record.records import Verdict

HEAD = Head(
    "claims",
    "Claims",
    "Do the published gains hold?",
    "Each published figure beside what was modelled for a GPU and measured on a machine.",
)
MAX_OTHERS = 50
"""Links to runs that do not speak."""
TONES: dict[Verdict, Tone] = {
    "faster": "good",
    "slower": "error",
    "same": "quiet",
    "undecided": "warning",
}


def claims_page(found: Snapshot, filters: Filters) -> tuple[Block, ...]:
    """A chart for each fix, side by side, then every figure as a table."""
    kept = found.kept(filters)
    entries = claim_entries.spoken_claims(kept, found.find)
    if not entries:
        return nothing("No run here speaks to a published claim.", "gapless reproduce")
    fixes = dict.fromkeys(entry.fix for entry in entries)
    silent = {run for entry in entries for run in entry.other_runs}
    return (
        Text(encodings_used([entry.source for entry in entries]), "quiet"),
        Columns(tuple(_fix_blocks(fix, [e for e in entries if e.fix == fix]) for fix in fixes)),
        grid(
            "claims",
            claim_entries.COLUMNS.table(entries),
            csv=rows_csv(ClaimEntry, entries),
        ),
        *_others(kept, silent - {entry.run for entry in entries}),
    )


def _others(kept: Sequence[Facets], silent: Collection[str]) -> tuple[Block, ...]:
    """The runs that do not speak, counted, and linked as far as a page can hold them."""
    if not silent:
        return ()
    listed = [facets for facets in kept if facets.id in silent][:MAX_OTHERS]
    label = (
        f"Not shown: {counted(len(silent), 'other run')} of the same claims (incomplete, too few "
        "blocks, a smaller set-up or a wider interval)"
    )
    if len(listed) < len(silent):
        label += f"; the newest {len(listed)} are linked here, the others are in the list of Run"
    return (Details(label, (Links(tuple((t, run) for run, t in run_titles(listed).items())),)),)


def _fix_blocks(fix: str, entries: Sequence[ClaimEntry]) -> tuple[Block, ...]:
    blocks: list[Block] = [
        Heading(fix),
        Badges(_badges(entries)),
        chart(f"claims-{fix}", claims_chart(entries), claim_entries.in_words(entries)),
    ]
    remarks = claim_entries.remarks(entries)
    if remarks:
        label = f"What does not add up ({len(remarks)})"
        blocks.append(Details(label, tuple(Text(remark) for remark in remarks)))
    return tuple(blocks)


def _badges(entries: Sequence[ClaimEntry]) -> tuple[tuple[str, Tone], ...]:
    """How many rows of the table have each verdict; every row that is not published is in one."""
    answers = [entry for entry in entries if entry.source != "published"]
    badges: list[tuple[str, Tone]] = []
    for source, verdict in product(("measured", "modelled"), TONES):
        number = sum((entry.source, entry.verdict) == (source, verdict) for entry in answers)
        if number:
            badges.append((f"{source}: {number} {VERDICT_MARK[verdict]}", TONES[verdict]))
    ranges = sum(entry.verdict is None and entry.speedup is not None for entry in answers)
    if ranges:
        badges.append((f"modelled: {counted(ranges, 'range')} without a verdict", "quiet"))
    missing = sum(entry.speedup is None for entry in answers)
    if missing:
        badges.append((f"no figure: {missing}", "warning"))
    checked = [entry for entry in answers if entry.parity_passed is not None]
    failed = sum(not entry.parity_passed for entry in checked)
    if failed:
        badges.append((f"parity fails in {failed}", "error"))
    elif checked:
        badges.append(("parity holds", "good"))
    return tuple(badges)
