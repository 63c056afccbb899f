"""Sites, modules and values computed again, from the audits of a run or of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.charts.sync_charts import module_tree, sites_chart
from dashboard.contents.blocks import Columns, Heading, Text, chart, grid
from dashboard.rows import sync_rows
from dashboard.rows.listed import rows_csv
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block
    from dashboard.rows.sync_rows import SiteRow
    from harness.record.attachments import ArmAudit

MAX_PLACES = 12
"""Costliest places that are charted; the table has all."""


def audited_arms(audits: Sequence[ArmAudit]) -> tuple[str, ...]:
    """The arms that the first one can be shown beside, the one with the fewest syncs first: an A/A
    arm would show nothing new."""
    later = list(audits[1:])
    if not later:
        return ()
    least = sync_rows.fewest(later)
    return (least.arm, *(audit.arm for audit in later if audit is not least))


def audit_blocks(audits: Sequence[ArmAudit], compare_with: str | None = None) -> tuple[Block, ...]:
    """The first audit beside that of another arm, or alone where it is the only one."""
    before = audits[0]
    compare_with = compare_with or next(iter(audited_arms(audits)), None)
    after = next((audit for audit in audits[1:] if audit.arm == compare_with), None)
    rows = sync_rows.site_rows(before.report, after.report if after else None)
    if not rows:
        return (Text("No sync was found.", "good"),)
    place_words = "; ".join(
        f"{row.place}: {figures.count(row.before)} per step" for row in rows[:MAX_PLACES]
    )
    remedies = dict.fromkeys(f"{row.place}: {row.remedy}" for row in rows if row.remedy)
    blocks: list[Block] = [
        Columns(
            (
                (
                    Heading("Costliest places"),
                    chart(
                        "sites",
                        sites_chart(rows, sync_rows.source_of(before.report), MAX_PLACES),
                        place_words,
                    ),
                ),
                _module_blocks(rows, "before" if after else ""),
            )
        ),
        grid(
            "sites",
            sync_rows.SITE_COLUMNS.table(rows),
            csv=rows_csv(sync_rows.SiteRow, rows),
        ),
    ]
    if remedies:
        blocks += [Heading("What to do"), *(Text(remedy) for remedy in remedies)]
    groups = sync_rows.group_rows(before)
    if groups:
        csv = rows_csv(sync_rows.GroupRow, groups)
        blocks += [
            Heading("Computed again and again"),
            grid("groups", sync_rows.GROUP_COLUMNS.table(groups), csv=csv),
        ]
    return tuple(blocks)


def _module_blocks(rows: Sequence[SiteRow], when: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    words = "Syncs per step by module, as nested areas."
    if any(row.before for row in rows):
        title = f"By module, {when}" if when else "By module"
        blocks += [Heading(title), chart("tree", module_tree(rows), words)]
    if any(row.after for row in rows):
        figure = module_tree(rows, after=True)
        blocks += [Heading("By module, after"), chart("tree-after", figure, words)]
    return tuple(blocks)
