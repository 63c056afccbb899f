"""Syncs: where does the host wait for the device?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.charts.sync_charts import counts_chart
from dashboard.contents.blocks import Head, Heading, Text, chart, grid, nothing
from dashboard.contents.site_blocks import audit_blocks, audited_arms
from dashboard.filters import Filters
from dashboard.rows import sync_rows
from dashboard.rows.listed import rows_csv
from harness.errors import StoreError
from harness.record.records import SyncCount
from harness.tables.run_tables import headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block
    from dashboard.snapshot import Snapshot
    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord

HEAD = Head(
    "syncs", "Syncs", "Syncs", "Where does the host wait for the device, and what does that cost?"
)
MAX_RUNS = 200


def counted_runs(found: Snapshot, filters: Filters, limit: int = MAX_RUNS) -> list[RunRecord]:
    """The newest runs that counted syncs; first those with syncs and the lines behind them."""
    records = [r for r in found.select(filters, limit) if r.syncs or r.audited_arms]
    return sorted(records, key=lambda r: not (r.audited_arms and any(s.count for s in r.syncs)))


def no_counts() -> tuple[Block, ...]:
    """What to do where no run counted syncs."""
    return (
        *nothing("No run here counted syncs.", "gapless audit my_train.py:step"),
        Text("A trace of your own can be opened without any run: see “Open a trace”.", "quiet"),
    )


def compared_arms(found: Snapshot, record: RunRecord) -> tuple[str, ...]:
    """The arms that the baseline can be shown beside; none where no audit can be read."""
    try:
        return audited_arms(found.attached.audits(record.id)) if record.audited_arms else ()
    except StoreError:
        return ()


def syncs_page(found: Snapshot, record: RunRecord, compare_with: str | None = None) -> list[Block]:
    """Counts by arm, then the sites of one arm before and of another after."""
    blocks: list[Block] = []
    rows = sync_rows.count_rows(record)
    if rows:
        blocks.append(chart("sync-counts", counts_chart(rows), sync_rows.in_words(rows)))
        csv = rows_csv(SyncCount, rows)
        blocks.append(grid("syncs", sync_rows.COUNT_COLUMNS.table(rows), csv=csv))
    if not record.audited_arms:
        command = f"gapless audit --scenario {record.scenario.name}"
        return [*blocks, *nothing("This run has counts and no audit, so no lines.", command)]
    try:
        audits = found.attached.audits(record.id)
    except StoreError as error:
        return [*blocks, Text(str(error), "warning")]
    return [*blocks, *_why_the_sums_differ(record, audits), *audit_blocks(audits, compare_with)]


def front_page(found: Snapshot) -> tuple[Block, ...]:
    """The page of the run that it opens on, under that run's name."""
    records = counted_runs(found, Filters(), len(found.facets))
    if not records:
        return no_counts()
    return (Heading(headline(records[0])), *syncs_page(found, records[0]))


def _why_the_sums_differ(record: RunRecord, audits: Sequence[ArmAudit]) -> list[Block]:
    """A sentence where the lines below sum to another number than the counts above."""
    said = []
    for audit in audits:
        counts = [count for count in record.syncs if count.arm == audit.arm]
        whole = [count for count in counts if count.phase == "batch"] or counts
        counted, listed = sum(count.count for count in whole), sync_rows.total(audit.report.sites)
        if whole and round(counted, 2) != round(listed, 2):
            said.append(f"{audit.arm}: {counted:,g} counted, {listed:,g} with a line")
    if not said:
        return []
    words = (
        "The counts are those of a pass of its own; the lines below come from the audit, which may "
        "see another step or not know the line of every sync. "
    )
    return [Text(words + "; ".join(said) + ".", "quiet")]
