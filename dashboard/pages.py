"""The pages of the export, from records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dashboard.blocks import Block, Code, Heading, Page, Text, chart, grid
from dashboard.charts.ab import overview_chart, resource_chart, speedup_chart, time_chart
from dashboard.charts.claims import claims_chart
from dashboard.charts.run import samples_chart
from dashboard.charts.style import encodings_used
from dashboard.charts.syncs import counts_chart, module_tree
from dashboard.rows import ab, claims, run, syncs
from dashboard.rows.listed import rows_csv
from harness.tables.run_tables import headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord, Sample

MAX_OVERVIEW_RUNS = 8


def claims_page(records: Sequence[RunRecord]) -> Page:
    """Published against modelled against measured."""
    entries = claims.claim_entries(records)
    blocks: list[Block] = []
    if not entries:
        blocks.append(Text("No run here speaks to a published claim: run `gapless reproduce`."))
    for fix in dict.fromkeys(entry.fix for entry in entries):
        chosen = [entry for entry in entries if entry.fix == fix]
        blocks.append(Heading(fix))
        blocks.append(chart(claims_chart(chosen), claims.in_words(chosen)))
        for remark in claims.remarks(chosen):
            blocks.append(Text(remark, "quiet"))
    if entries:
        blocks.insert(0, Text(encodings_used([entry.source for entry in entries]), "quiet"))
        blocks.append(
            grid(
                claims.COLUMNS.table(entries),
                name="claims",
                csv=rows_csv(claims.ClaimEntry, entries),
            )
        )
    return Page("claims", "Claims", "Do the published gains hold?", tuple(blocks))


def ab_page(records: Sequence[RunRecord]) -> Page:
    """Every arm of every run."""
    rows = [row for record in records for row in ab.arm_rows(record)]
    blocks: list[Block] = []
    batch = [row for row in rows if row.phase == "batch"]
    if batch:
        shown = ab.newest_by_place(batch, MAX_OVERVIEW_RUNS)
        blocks.append(Text(encodings_used([row.source for row in shown]), "quiet"))
        blocks.append(chart(overview_chart(shown), ab.in_words(shown)))
        if len({row.run for row in batch}) > len({row.run for row in shown}):
            blocks.append(
                Text(
                    f"Charted: the newest run of each set-up, {MAX_OVERVIEW_RUNS} at most.", "quiet"
                )
            )
    if rows:
        blocks.append(
            grid(
                ab.COLUMNS.table(rows),
                name="ab",
                csv=rows_csv(ab.ArmRow, rows),
                moved=tuple(row.moved for row in rows),
            )
        )
    else:
        blocks.append(Text("No arms were compared: run `gapless bench SCENARIO --ladder`."))
    return Page("ab", "A/B", "What does each fix change, and how sure is that?", tuple(blocks))


def syncs_page(records: Sequence[RunRecord], audits: Sequence[Sequence[ArmAudit]]) -> Page:
    """Counts by arm, and sites of the newest audited run."""
    blocks: list[Block] = []
    counted = next((record for record in records if record.syncs), None)
    if counted is not None:
        rows = syncs.count_rows(counted)
        blocks.append(Heading(headline(counted)))
        blocks.append(chart(counts_chart(rows), syncs.in_words(rows)))
        blocks.append(
            grid(
                syncs.COUNT_COLUMNS.table(rows),
                name="syncs",
                csv=rows_csv(syncs.CountRow, rows),
            )
        )
    found = next((one for one in audits if one), ())
    if found:
        blocks += audit_blocks(found)
    if not blocks:
        blocks.append(Text("No run here counted syncs: run `gapless audit TARGET`."))
    return Page("syncs", "Syncs", "Where does the host wait for the device?", tuple(blocks))


def audit_blocks(audits: Sequence[ArmAudit]) -> list[Block]:
    """Sites of the first audit beside those of the arm with the fewest syncs."""
    after = syncs.fewest(audits[1:]).report if len(audits) > 1 else None
    rows = syncs.site_rows(audits[0].report, after)
    blocks: list[Block] = [Heading("Where in the model")]
    if any(row.before for row in rows):
        blocks.append(chart(module_tree(rows), "Syncs per step by module, as nested areas."))
    blocks.append(
        grid(syncs.SITE_COLUMNS.table(rows), name="sites", csv=rows_csv(syncs.SiteRow, rows))
    )
    groups = syncs.group_rows(audits[0])
    if groups:
        blocks.append(Heading("Computed again and again"))
        blocks.append(
            grid(
                syncs.GROUP_COLUMNS.table(groups),
                name="redundant",
                csv=rows_csv(syncs.GroupRow, groups),
            )
        )
    return blocks


def run_page(
    record: RunRecord,
    samples: Sequence[Sample],
    audits: Sequence[ArmAudit] = (),
    *,
    max_points: int = run.MAX_DRAWN_SAMPLES,
    own_csv: bool = True,
) -> Page:
    """One run whole. `max_points` bounds the samples drawn; without `own_csv` the table of its
    arms refers to that of all runs, which lies in the same file."""
    rows = ab.arm_rows(record)
    blocks: list[Block] = []
    if record.reason:
        blocks.append(Text(f"{record.status}: {record.reason}", "warning"))
    blocks += [Text(warning, "warning") for warning in record.steadiness.warnings]
    blocks += [Text(note, "quiet") for note in record.notes]
    blocks.append(Code(record.command, "Command to repeat it"))
    if rows:
        strips = ab.strips(record, samples) if len(samples) <= max_points else {}
        blocks.append(Heading("Speedup"))
        blocks.append(Text(encodings_used([row.source for row in rows]), "quiet"))
        blocks.append(chart(speedup_chart(rows, strips), ab.in_words(rows)))
        blocks.append(
            grid(
                ab.COLUMNS.table(rows),
                name="arms",
                csv=rows_csv(ab.ArmRow, rows) if own_csv else "",
                csv_run="" if own_csv else record.id,
            )
        )
        blocks.append(Heading("Time"))
        blocks.append(chart(time_chart(rows), "Time of each arm in each phase."))
        resources = resource_chart(rows)
        if resources is not None:
            blocks.append(Heading("Tokens/s, memory, energy"))
            blocks.append(chart(resources, "Change of each from the baseline."))
    drawn = run.sample_rows(samples, run.main_phase(samples), max_points)
    if drawn:
        blocks.append(Heading("Samples in the order they were taken"))
        blocks.append(chart(samples_chart(drawn), "Duration of each sample over its position."))
    if record.parity:
        blocks.append(Heading("Parity"))
        blocks.append(grid(run.PARITY_COLUMNS.table(record.parity)))
    if audits:
        blocks += audit_blocks(audits)
    blocks.append(Heading("Environment"))
    blocks.append(grid(run.environment_table(record)))
    raw = msgspec.json.encode(msgspec.structs.replace(record, samples=None)).decode()
    blocks.append(Code(raw, "Raw record"))
    title = f"{record.created_utc} · {record.scenario.name} · {record.source}"
    return Page(record.id, title, headline(record), tuple(blocks))
