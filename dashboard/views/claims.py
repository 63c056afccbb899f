"""Claims: do the published gains hold?"""

from __future__ import annotations

import itertools

import streamlit as st

from dashboard import shown
from dashboard.charts.claims import claims_chart
from dashboard.charts.style import VERDICT_MARK, encodings_used
from dashboard.plain import markdown_text
from dashboard.rows import claims
from dashboard.rows.listed import rows_csv

COLOURS = {"faster": "green", "slower": "red", "same": "gray", "undecided": "orange"}


def _badges(entries: list[claims.ClaimEntry]) -> None:
    """One for each source and verdict, and for parity; a word stands in each."""
    with st.container(horizontal=True, gap="small"):
        answers = [entry for entry in entries if entry.verdict]
        for source, verdict in itertools.product(("measured", "modelled"), COLOURS):
            number = sum((entry.source, entry.verdict) == (source, verdict) for entry in answers)
            if number:
                mark = VERDICT_MARK[verdict]  # type: ignore[index]  # keys are the verdicts
                colour = COLOURS[verdict]
                st.badge(f"{source}: {number} {mark}", color=colour)  # type: ignore[arg-type]  # as above
        checked = [entry for entry in answers if entry.parity_passed is not None]
        failed = sum(not entry.parity_passed for entry in checked)
        if failed:
            st.badge(f"parity fails in {failed}", color="red", icon=":material/error:")
        elif checked:
            st.badge("parity holds", color="green", icon=":material/check:")


def page() -> None:
    """A chart for each fix, side by side, then every figure as a table."""
    found = shown.snapshot()
    shown.page_head(
        "claims",
        "Do the published gains hold?",
        "Each published figure beside what was modelled for a GPU and measured on a machine.",
    )
    entries = claims.claim_entries(found.speaking(shown.current_filters()))
    if not entries:
        shown.empty("No run here speaks to a published claim.", "gapless reproduce")
        return
    st.caption(encodings_used([entry.source for entry in entries]))
    fixes = list(dict.fromkeys(entry.fix for entry in entries))
    for column, fix in zip(st.columns(len(fixes)), fixes, strict=True):
        chosen = [entry for entry in entries if entry.fix == fix]
        with column.container(border=True):
            st.subheader(markdown_text(fix), anchor=False)
            _badges(chosen)
            shown.show_chart(claims_chart(chosen), claims.in_words(chosen), f"claims-{fix}")
            remarks = claims.remarks(chosen)
            if remarks:
                with st.expander(f"What does not add up ({len(remarks)})"):
                    for remark in remarks:
                        st.text(remark)
    shown.show_table(claims.COLUMNS.table(entries), rows_csv(claims.ClaimEntry, entries), "claims")


page()
