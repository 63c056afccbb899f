"""Timeline: what ran on each stream, and when did the device idle?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.charts.lane_chart import timeline_chart
from dashboard.contents.blocks import Details, Head, Text, chart, grid, nothing
from dashboard.rows import lane_rows
from dashboard.rows.listed import rows_csv
from harness.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block, Chart
    from dashboard.filters import Filters
    from dashboard.rows.lane_rows import Timeline
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord

HEAD = Head(
    "timeline", "Timeline", "Timeline", "What ran on each stream, and when did the device idle?"
)
MAX_RUNS = 200

Window = tuple[float, float]
"""Start and end of what is shown, in ms since the first event."""
Named = tuple[str, "Timeline"]

OF_SOURCE = {
    "measured": "Measured: steps under the profiler, which is never on in timed blocks. What it "
    "adds to the host makes gaps look longer than they are.",
    "modelled": "Modelled by the virtual clock: no GPU ran this.",
    "published": "Published by somebody else.",
}


def traced_runs(found: Snapshot, filters: Filters) -> list[RunRecord]:
    """The newest runs that kept a timeline."""
    positions = [n for n in found.positions(filters) if found.facets[n].has_traces][:MAX_RUNS]
    return [found.records[n] for n in positions]


def no_timeline() -> tuple[Block, ...]:
    """What to do where no run kept one."""
    return nothing(
        "No run here kept a timeline: runs on a GPU and modelled ones do. A trace of your own "
        "opens under “Open a trace”; `gapless list` has the names for --arm.",
        "gapless model qwen3-8b-packed-sft --gpu B200 --arm OPTIMIZATION=VARIANT",
    )


def read_timelines(
    found: Snapshot, record: RunRecord
) -> tuple[tuple[Block, ...], tuple[Named, ...]]:
    """What is said of a run's traces before they are drawn, and those that can be drawn."""
    said: list[Block] = [
        Text(f"{OF_SOURCE[record.source]} A lane is as high as it is busy.", "quiet")
    ]
    timelines: list[Named] = []
    for arm in dict.fromkeys(record.traced_arms):
        try:
            timeline = found.attached.timeline(record.id, arm)
        except StoreError as error:
            said.append(Text(f"{arm}: {error}", "warning"))
            continue
        if timeline is None:
            said.append(Text(f"{arm}: its trace shows no work on a device.", "warning"))
            continue
        said += [Text(f"{arm}: {note}.", "warning") for note in timeline.notes]
        timelines.append((arm, timeline))
    return tuple(said), tuple(timelines)


def longest_ms(timelines: Sequence[Named]) -> float:
    """The length of the longest timeline, to which all are aligned."""
    return max(timeline.span_ms for _, timeline in timelines)


def lanes_chart(timelines: Sequence[Named], window: Window) -> Chart:
    """Timelines under each other, drawn anew for each window with at most one shape a pixel."""
    words = lane_rows.summary_words(lane_rows.summary_rows(timelines))
    return chart("lanes", timeline_chart(timelines, *window), words)


def lanes_tables(timelines: Sequence[Named]) -> tuple[Block, ...]:
    """Each timeline in figures, then its lanes."""
    summary = lane_rows.summary_rows(timelines)
    csv = rows_csv(lane_rows.SummaryRow, summary)
    return (
        grid("timelines", lane_rows.SUMMARY.table(summary), csv=csv),
        *(_lanes(title, timeline) for title, timeline in timelines),
    )


def _lanes(title: str, timeline: Timeline) -> Details:
    rows = lane_rows.lane_rows(timeline)
    csv = rows_csv(lane_rows.LaneRow, rows)
    table = grid(f"lanes-{title}", lane_rows.COLUMNS.table(rows), csv=csv)
    return Details(f"Lanes of {title}", (table,))
