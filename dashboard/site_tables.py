"""Sites, modules and redundant groups of audits, shown on two pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.charts.syncs import module_tree, sites_chart
from dashboard.rows import syncs
from dashboard.rows.listed import rows_csv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.attachments import ArmAudit


def show_audits(audits: Sequence[ArmAudit], name: str) -> None:
    """The first audit beside another, or alone where it is the only one.

    The other is at first the one with the fewest syncs: an A/A arm would show nothing new.
    """
    before, *later = audits
    after = None
    if later:
        arms = [audit.arm for audit in later]
        start = later.index(syncs.fewest(later))
        chosen = st.selectbox("Compare with", arms, index=start, key=f"after-{name}")
        after = later[arms.index(chosen)]
    rows = syncs.site_rows(before.report, after.report if after else None)
    if not rows:
        st.success("No wait was found.", icon=":material/check:")
        return
    left, right = st.columns(2)
    with left:
        st.subheader("Costliest places", anchor=False)
        figure = sites_chart(rows, syncs.source_of(before.report))
        words = "; ".join(f"{row.place}: {row.before:g} per step" for row in rows[:12])
        shown.show_chart(figure, words, f"sites-{name}")
    with right:
        st.subheader("By module, before" if after else "By module", anchor=False)
        shown.show_chart(module_tree(rows), "Syncs per step by module.", f"tree-{name}")
        if after is not None and any(row.after for row in rows):
            st.subheader("By module, after", anchor=False)
            shown.show_chart(
                module_tree(rows, after=True), "Syncs per step by module.", f"tree-after-{name}"
            )
    shown.show_table(syncs.SITE_COLUMNS.table(rows), rows_csv(syncs.SiteRow, rows), f"sites-{name}")
    remedies = dict.fromkeys(f"{row.place}: {row.remedy}" for row in rows if row.remedy)
    if remedies:
        st.subheader("What to do", anchor=False)
        for remedy in remedies:
            st.text(remedy)
    groups = syncs.group_rows(before)
    if groups:
        st.subheader("Computed again and again", anchor=False)
        shown.show_table(
            syncs.GROUP_COLUMNS.table(groups), rows_csv(syncs.GroupRow, groups), f"groups-{name}"
        )
