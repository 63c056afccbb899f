"""Syncs: where does the host wait for the device?"""

from __future__ import annotations

import streamlit as st

from dashboard import shown
from dashboard.charts.syncs import counts_chart
from dashboard.plain import markdown_text, without_folder
from dashboard.rows import syncs
from dashboard.rows.listed import rows_csv
from dashboard.site_tables import show_audits
from harness.errors import StoreError
from harness.record.store import Store

MAX_RUNS = 200


def page() -> None:
    """Counts by arm, then the sites of one run before and after."""
    found = shown.snapshot()
    wanted = st.query_params.get_all("of")
    shown.page_head(
        "syncs",
        "Syncs",
        "Where does the host wait for the device, and what does that cost?",
        [("of", run) for run in wanted],
    )
    shown.warn_of_gone(found, wanted)
    records = [
        r for r in found.select(shown.current_filters(), MAX_RUNS) if r.syncs or r.audited_arms
    ]
    if not records:
        shown.empty("No run here counted syncs.", "gapless audit my_train.py:step")
        st.caption("A trace of your own can be opened without any run: see “Open a trace”.")
        return
    # The page opens on the newest run with waits and their lines, where there is one.
    records.sort(key=lambda r: not (r.audited_arms and any(s.count for s in r.syncs)))
    titles = shown.run_titles(records)
    of = st.selectbox(
        "Run", list(titles), format_func=lambda run: titles[run], key="of", bind="query-params"
    )
    record = found.find(of) if of else None
    if record is None:
        return
    rows = syncs.count_rows(record)
    if rows:
        shown.show_chart(counts_chart(rows), syncs.in_words(rows), "sync-counts")
        shown.show_table(syncs.COUNT_COLUMNS.table(rows), rows_csv(syncs.CountRow, rows), "syncs")
    if not record.audited_arms:
        shown.empty(
            "This run has counts and no audit, so no lines.",
            f"gapless audit --scenario {record.scenario.name}",
        )
        return
    try:
        audits = Store(found.root).audits(record.id)
    except StoreError as error:
        st.warning(markdown_text(without_folder(error, found.root)))
        return
    show_audits(audits, "run")


page()
