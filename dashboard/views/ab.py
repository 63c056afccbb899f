"""A/B: what does each fix change, and how sure is that?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import shown
from dashboard.charts.ab import (
    overview_chart,
    resource_chart,
    speedup_chart,
    steps_chart,
    time_chart,
)
from dashboard.charts.style import encodings_used
from dashboard.plain import markdown_text
from dashboard.rows import ab, across
from dashboard.rows.listed import rows_csv
from harness.record.records import PHASES

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord

MAX_RUNS = 40
MAX_OVERVIEW = 8


def _overview(rows: list[ab.ArmRow], phase: str) -> None:
    of_phase = [row for row in rows if row.phase == phase]
    drawn = ab.newest_by_place(of_phase, MAX_OVERVIEW)
    if not drawn:
        st.info(f"No run here timed the phase {phase}: choose another.")
        return
    st.caption(
        f"{encodings_used([row.source for row in drawn])} · shaded: the baseline against itself · "
        f"the newest run of each model size and GPU, {MAX_OVERVIEW} at most"
    )
    shown.show_chart(overview_chart(drawn), ab.in_words(drawn), "ab-overview")


def _one_run(found: Snapshot, record: RunRecord) -> None:
    rows = ab.arm_rows(record)
    samples = shown.samples_of(found.root, record.id)
    ways = ["Speedup", "Time", "Tokens/s, memory, energy", "Ladder", "Leave one out"]
    way = st.segmented_control(
        "Show", ways, default=ways[0], required=True, key="show", bind="query-params"
    )
    steps = {"Ladder": ab.ladder_rows, "Leave one out": ab.leave_one_out_rows}
    if way in steps:
        phase = next((p for p in ("batch", *PHASES) if any(r.phase == p for r in rows)), "batch")
        found_steps = steps[way](record, samples, phase)  # type: ignore[arg-type]  # a phase
        if found_steps:
            words = "; ".join(f"{row.fix}: {row.text}" for row in found_steps)
            shown.show_chart(steps_chart(found_steps), words, "ab-steps")
            shown.show_table(
                ab.STEP_COLUMNS.table(found_steps), rows_csv(ab.StepRow, found_steps), "steps"
            )
        else:
            flag = "--ladder" if way == "Ladder" else "--leave-one-out"
            shown.empty(
                "The arms of this run do not add or leave out one fix at a time.",
                f"gapless bench {record.scenario.name} {flag}",
            )
        return
    if way == "Time":
        shown.show_chart(time_chart(rows), "Time of each arm in each phase.", "ab-time")
    elif way == "Speedup":
        st.caption("Dots: each block. Whiskers: the interval. Shaded: the baseline against itself.")
        strips = ab.strips(record, samples)
        shown.show_chart(speedup_chart(rows, strips), ab.in_words(rows), "ab-run")
    else:
        figure = resource_chart(rows)
        if figure is None:
            st.info("This run kept neither throughput, memory nor energy.")
        else:
            shown.show_chart(figure, "Change of each from the baseline.", "ab-resources")


def _against_base(found: Snapshot, records: list[RunRecord], only_moved: bool) -> None:
    titles = shown.run_titles(records)
    base_id = st.selectbox(
        "Base", list(titles), format_func=lambda run: titles[run], key="base", bind="query-params"
    )
    others = st.multiselect(
        "Against it", [run for run in titles if run != base_id],
        format_func=lambda run: titles[run], key="against", bind="query-params",
        max_selections=20, placeholder="choose runs",
    )  # fmt: skip
    base = found.find(base_id) if base_id else None
    if base is None or not others:
        st.caption("Choose runs to see which of their arms moved against the base.")
        return
    runs = [run for run in map(found.find, others) if run is not None]
    for run in runs:
        differs = across.differences(base, run)
        if differs:
            with st.container(horizontal=True):
                st.badge("not comparable", color="red", icon=":material/block:")
                st.text(f"{titles[run.id]}: {'; '.join(differs)}")
    rows = [r for r in across.across_rows(base, runs) if r.moved or not only_moved]
    if rows:
        shown.show_table(
            across.COLUMNS.table(rows), rows_csv(across.AcrossRow, rows), "against-base"
        )
    else:
        st.info("Nothing moved: every interval meets that of the base.")


def page() -> None:
    """Several runs at once, one run closely, runs against a base, and all as a table."""
    found = shown.snapshot()
    wanted = [*st.query_params.get_all("against"), *st.query_params.get_all("base")]
    query = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
    own = [pair for pair in query if pair[0] in ("phase", "show", "base", "against", "moved", "of")]
    shown.page_head("ab", "A/B", "What does each fix change, and how sure is that?", own)
    shown.warn_of_gone(found, [*wanted, *st.query_params.get_all("of")])
    filters = shown.current_filters()
    records = found.select(filters, MAX_RUNS)
    rows = [row for record in records for row in ab.arm_rows(record)]
    if not rows:
        shown.empty("No run here compares arms.", "gapless bench SCENARIO --ladder")
        return
    number = len(found.positions(filters))
    if number > len(records):
        st.caption(f"The newest {len(records)} of {number:,} runs: filter to see others.")
    left, right = st.columns([3, 2])
    phases = [phase for phase in PHASES if any(row.phase == phase for row in rows)]
    start = "batch" if "batch" in phases else phases[0]
    phase = left.segmented_control(
        "Phase", phases, default=start, required=True, key="phase", bind="query-params"
    )
    only_moved = right.toggle("Only what moved", value=True, key="moved", bind="query-params")
    _overview(rows, phase)

    st.subheader("One run closely", anchor=False)
    compared = [record for record in records if record.comparisons]
    titles = shown.run_titles(compared)
    of = st.selectbox(
        "Run", list(titles), format_func=lambda run: titles[run], key="of", bind="query-params"
    )
    record = found.find(of) if of else None
    if record is not None:
        st.markdown(f"[Everything about this run]({shown.run_link(record.id)})")
        _one_run(found, record)

    st.subheader("Runs against one base", anchor=False)
    _against_base(found, compared, only_moved)

    st.subheader("All figures", anchor=False)
    listed = [row for row in rows if row.moved or not only_moved]
    if not listed:
        st.info(f"Nothing moved in {len(rows)} comparisons: switch off “Only what moved”.")
    else:
        st.caption(f"{len(listed)} of {len(rows)} comparisons in {markdown_text(found.name)}")
        shown.show_table(ab.COLUMNS.table(listed), rows_csv(ab.ArmRow, listed), "ab")


page()
