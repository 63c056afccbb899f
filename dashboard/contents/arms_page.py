"""A/B: what does each fix change, and how sure is that?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dashboard.charts.arm_charts import (
    overview_chart,
    resource_chart,
    speedup_chart,
    steps_chart,
    time_chart,
)
from dashboard.charts.style import encodings_used
from dashboard.contents.blocks import Head, Heading, Links, Text, chart, grid, nothing
from dashboard.facets import facets_of, run_titles
from dashboard.rows import arm_rows, run_differences
from dashboard.rows.listed import rows_csv
from harness.counts import counted
from harness.errors import StoreError
from harness.record.records import PHASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block
    from dashboard.filters import Filters
    from dashboard.rows.arm_rows import ArmRow, StepRow
    from dashboard.snapshot import Snapshot
    from harness.record.records import Phase, RunRecord, Sample

HEAD = Head("ab", "A/B", "A/B", "What does each fix change, and how sure is that?")
MAX_OVERVIEW = 8
MAX_RUNS = 40

LARGEST_FIRST: tuple[Phase, ...] = PHASES[::-1]

Way = Literal["Speedup", "Time", "Tokens/s, memory, energy", "Ladder", "Leave one out"]
WAYS: tuple[Way, ...] = (
    "Speedup", "Time", "Tokens/s, memory, energy", "Ladder", "Leave one out",
)  # fmt: skip


@dataclass(frozen=True)
class ArmChoices:
    """What somebody chose on this page."""

    filters: Filters
    phase: Phase = "batch"
    only_moved: bool = False
    max_runs: int | None = None
    """Runs in the table of all figures, newest first."""


def overview(found: Snapshot, choices: ArmChoices) -> tuple[Block, ...]:
    """The arms of each model size and GPU in one phase, from the runs that speak for them."""
    spoken = arm_rows.spoken(
        found.kept(choices.filters), found.find, phase=choices.phase, max_runs=MAX_OVERVIEW
    )
    if not spoken.rows:
        return (Text(f"No run here timed the phase {choices.phase}: choose another.", "info"),)
    words = [
        encodings_used([row.source for row in spoken.rows]),
        "shaded: the baseline against itself",
    ]
    if not all(row.has_enough_blocks for row in spoken.rows):
        words.append("hollow dot: too few blocks")
    if spoken.num_left_out:
        words.append(f"{counted(spoken.num_left_out, 'more figure')}: filter to chart others")
    if spoken.num_others:
        words.append(f"not charted: {counted(spoken.num_others, 'figure')} of the same arms")
    return (
        Text(" · ".join(words), "quiet"),
        chart("ab-overview", overview_chart(spoken.rows), arm_rows.in_words(spoken.rows)),
    )


def closely(found: Snapshot, record: RunRecord, way: Way) -> tuple[Block, ...]:
    """One run, looked at in one way."""
    rows = arm_rows.arm_rows(record)
    link = Links((("Everything about this run", record.id),))
    if not rows:
        return link, Text("This run compared no arms.", "info")
    try:
        samples = found.attached.samples(record.id)
    except StoreError as error:
        return link, Text(str(error), "warning")
    return link, *_way_blocks(record, rows, samples, way)


def _way_blocks(
    record: RunRecord, rows: Sequence[ArmRow], samples: Sequence[Sample], way: Way
) -> tuple[Block, ...]:
    if way == "Speedup":
        words = "Dots: each block. Whiskers: the interval. Shaded: the baseline against itself."
        figure = speedup_chart(rows, arm_rows.strips(record, samples))
        return Text(words, "quiet"), chart("ab-run", figure, arm_rows.in_words(rows))
    if way == "Time":
        return (chart("ab-time", time_chart(rows), "Time of each arm in each phase."),)
    if way == "Tokens/s, memory, energy":
        resources = resource_chart(rows)
        if resources is None:
            return (Text("This run kept neither throughput, memory nor energy.", "info"),)
        return (chart("ab-resources", resources, "Change of each from the baseline."),)
    phase: Phase = next((p for p in LARGEST_FIRST if any(row.phase == p for row in rows)), "batch")
    if way == "Ladder":
        return _steps(record, arm_rows.ladder_rows(record, samples, phase), "--ladder")
    return _steps(record, arm_rows.leave_one_out_rows(record, samples, phase), "--leave-one-out")


def _steps(record: RunRecord, steps: Sequence[StepRow], flag: str) -> tuple[Block, ...]:
    if not steps:
        return nothing(
            "The arms of this run do not add or leave out one fix at a time.",
            f"gapless bench {record.scenario.name} {flag}",
        )
    words = "; ".join(f"{row.fix}: {row.text}" for row in steps)
    csv = rows_csv(arm_rows.StepRow, steps)
    return (
        chart("ab-steps", steps_chart(steps), words),
        grid("steps", arm_rows.STEP_COLUMNS.table(steps), csv=csv),
    )


def against_base(
    base: RunRecord, runs: Sequence[RunRecord], *, only_moved: bool
) -> tuple[Block, ...]:
    """What moved in runs that compare with the base, and in what the others differ from it."""
    differ = [row for run in runs for row in run_differences.differences(base, run)]
    every = run_differences.across_rows(base, runs)
    rows = [row for row in every if row.moved or not only_moved]
    blocks: list[Block] = []
    if differ:
        titles = run_titles([facets_of(record) for record in (base, *runs)])
        names = "; ".join(titles[run] for run in dict.fromkeys(row.run for row in differ))
        blocks += [
            Text(f"Not comparable with the base, so without a verdict: {names}.", "warning"),
            grid(
                "differences",
                run_differences.DIFFERENCE_COLUMNS.table(differ),
                csv=rows_csv(run_differences.DifferenceRow, differ),
            ),
        ]
    if rows:
        csv = rows_csv(run_differences.AcrossRow, rows)
        blocks.append(grid("against-base", run_differences.COLUMNS.table(rows), csv=csv))
    elif every:
        words = counted(len(every), "comparison")
        blocks.append(Text(f"Nothing moved in {words}: every interval meets the base's.", "info"))
    elif not differ:
        blocks.append(Text("These runs share no arm and phase with the base.", "info"))
    return tuple(blocks)


def all_figures(found: Snapshot, choices: ArmChoices) -> tuple[Block, ...]:
    """Every comparison of the newest runs as a table."""
    positions = found.positions(choices.filters)
    records = [found.records[position] for position in positions[: choices.max_runs]]
    rows = [row for record in records for row in arm_rows.arm_rows(record)]
    listed = [row for row in rows if row.moved or not choices.only_moved]
    if not rows:
        return ()
    runs = f"{counted(len(records), 'run')} in {found.name}"
    if len(positions) > len(records):
        runs = f"the newest {len(records)} of {counted(len(positions), 'run')} in {found.name}"
    if not listed:
        number = counted(len(rows), "comparison")
        return (Text(f"Nothing moved in {number}: switch off “Only what moved”.", "info"),)
    return (
        Text(f"{len(listed)} of {counted(len(rows), 'comparison')} of {runs}", "quiet"),
        grid(
            "ab",
            arm_rows.COLUMNS.table(listed),
            csv=rows_csv(arm_rows.ArmRow, listed),
            moved=tuple(row.moved for row in listed),
        ),
    )


def arms_page(found: Snapshot, choices: ArmChoices) -> tuple[Block, ...]:
    """The overview and every figure."""
    if not any(facets.arm_voices for facets in found.kept(choices.filters)):
        return nothing("No run here compares arms.", "gapless bench SCENARIO --ladder")
    return (
        *overview(found, choices),
        Heading("All figures"),
        *all_figures(found, choices),
    )
