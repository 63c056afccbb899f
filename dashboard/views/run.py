"""Run: one run whole, down to its raw record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import streamlit as st

from dashboard import shown
from dashboard.charts.ab import speedup_chart
from dashboard.charts.run import samples_chart
from dashboard.facets import facets_of
from dashboard.plain import markdown_text
from dashboard.rows import ab, run
from dashboard.rows.listed import rows_csv
from harness.record.records import PHASES, Parity
from harness.tables.grid import to_csv
from harness.tables.run_tables import headline

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord

MAX_LISTED = 500


def _facts(record: RunRecord) -> None:
    with st.container(horizontal=True, gap="small"):
        st.badge(record.status, color="green" if record.status == "complete" else "red")
        st.badge(record.source, color="blue" if record.source == "measured" else "orange")
        if record.steadiness.throttle_reasons:
            st.badge("throttled", color="red", icon=":material/thermostat:")
        if any(not check.passed for check in record.parity):
            st.badge("parity fails", color="red")
        elif record.parity:
            st.badge("parity holds", color="green")
    if record.reason:
        st.error(markdown_text(record.reason))
    for warning in record.steadiness.warnings:
        st.warning(markdown_text(warning))
    for note in record.notes:
        st.text(note)
    st.caption("Command to repeat it")
    st.code(record.command, language=None, wrap_lines=True)


def _samples(found: Snapshot, record: RunRecord) -> None:
    samples = shown.samples_of(found.root, record.id)
    if not samples:
        st.info("This run left no samples.")
        return
    phases = [phase for phase in PHASES if any(sample.phase == phase for sample in samples)]
    start = run.main_phase(samples)
    phase = st.segmented_control(
        "Phase", phases, default=start, required=True, key="phase", bind="query-params"
    )
    rows = run.sample_rows(samples, phase)
    shown.show_chart(samples_chart(rows), f"{len(rows)} samples in order.", "run-samples")
    csv = rows_csv(run.SampleRow, [*map(_as_row, samples)])
    st.download_button(
        "CSV of all samples", csv, f"{record.id}-samples.csv", "text/csv", on_click="ignore"
    )


def _as_row(sample: object) -> run.SampleRow:
    return msgspec.convert(sample, run.SampleRow, from_attributes=True)


def _one(found: Snapshot, record: RunRecord) -> None:
    _facts(record)
    rows = ab.arm_rows(record)
    if rows:
        st.subheader("Speedup", anchor=False)
        strips = ab.strips(record, shown.samples_of(found.root, record.id))
        shown.show_chart(speedup_chart(rows, strips), ab.in_words(rows), "run-speedup")
        shown.show_table(ab.COLUMNS.table(rows), rows_csv(ab.ArmRow, rows), f"{record.id}-arms")
    st.subheader("Samples in the order they were taken", anchor=False)
    _samples(found, record)
    if record.parity:
        st.subheader("Parity", anchor=False)
        shown.show_table(
            run.PARITY_COLUMNS.table(record.parity),
            rows_csv(Parity, record.parity),
            f"{record.id}-parity",
        )
    st.subheader("Environment", anchor=False)
    environment = run.environment_table(record)
    shown.show_table(
        environment, to_csv(environment.columns, environment.rows), f"{record.id}-environment"
    )
    raw = msgspec.json.format(
        msgspec.json.encode(msgspec.structs.replace(record, samples=None)), indent=2
    ).decode()
    with st.expander("Raw record"):
        st.code(raw, language=None, height=400)
    st.download_button(
        "Download run.json", raw, f"{record.id}.json", "application/json", on_click="ignore"
    )


def page() -> None:
    """The run that the address names, or the newest."""
    found = shown.snapshot()
    wanted = st.query_params.get_all("id")
    shown.page_head(
        "run", "Run", "What exactly was run, and can I trust it?", [("id", one) for one in wanted]
    )
    shown.warn_of_gone(found, wanted)
    positions = found.positions(shown.current_filters())[:MAX_LISTED]
    listed = [found.facets[position] for position in positions]
    listed += [facets_of(record) for one in wanted if (record := found.find(one)) is not None]
    if not listed:
        shown.empty("The store has no run that the filters keep.", "gapless reproduce")
        return
    titles = shown.facet_titles(listed)
    chosen = st.selectbox(
        "Run", list(titles), format_func=lambda run_id: titles[run_id], key="id",
        bind="query-params",
    )  # fmt: skip
    record = found.find(chosen) if chosen else None
    if record is not None:
        st.caption(markdown_text(f"{headline(record)} · {record.id}"))
        _one(found, record)


page()
