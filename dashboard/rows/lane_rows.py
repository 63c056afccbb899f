"""Timeline: what ran on each stream when, as a share of each pixel: a page draws no events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from dashboard.rows.listed import Columns
from harness.audit.trace.columns import CUDA_SYNC, KERNEL, MEMCPY
from harness.audit.trace.device_timeline import communication_names
from harness.audit.trace.trace_audit import analyse
from harness.clock.intervals import Intervals
from harness.record.records import Record
from harness.tables import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Trace
    from harness.audit.trace.trace_audit import Analysis

Work = Literal["compute", "copy", "communication", "other"]
Spans = tuple[tuple[float, float], ...]
"""(start, end) in ms since the first event."""

Fills = tuple[tuple[float, float, float], ...]
"""(start, end, share that is busy) in ms since the first event."""

LEVELS = 10
"""Shades of fullness that are told apart."""
MAX_SPANS = 20_000
"""Spans kept of each lane: finer than any screen, small enough to keep."""
MAX_STREAMS = 16


class Lane(Record, frozen=True, kw_only=True):
    """One kind of work on one stream, or what the host did."""

    name: str
    work: Work
    spans: Spans
    num_events: int


class Timeline(Record, frozen=True, kw_only=True):
    """One trace as lanes."""

    span_ms: float
    lanes: tuple[Lane, ...]
    waits: Spans
    """The host waits for the device."""
    idle: Spans
    """No device works."""
    exposed: Spans
    """Part of the idle time that is there because of a wait."""
    copy_ms: float = 0.0
    """Time in which at least one copy ran."""
    overlap: float | None = None
    """Share of it beside a kernel; `None` where nothing was copied."""
    notes: tuple[str, ...] = ()
    """What of the trace could not be read."""


class LaneRow(Record, frozen=True, kw_only=True):
    """One lane in figures."""

    lane: str
    work: str
    busy_ms: float
    share: float
    num_events: int


class SummaryRow(Record, frozen=True, kw_only=True):
    """One whole timeline in figures."""

    name: str
    span_ms: float
    idle_ms: float
    exposed_ms: float
    num_waits: int
    copy_ms: float
    overlap: float | None


def timeline_of(trace: Trace, analysis: Analysis | None = None) -> Timeline | None:
    """The lanes of one trace; `None` where it holds no device work."""
    analysis = analysis or analyse(trace)
    device = trace.device
    everything = analysis.everything
    if everything is None or not len(device):
        return None
    waits = Intervals.union_of(analysis.waits.start, analysis.waits.end)
    begin = min([everything.start, *waits.start[:1].tolist()])
    end = max([everything.end, *waits.end[-1:].tolist()])
    exposed = Intervals.empty()
    for part in analysis.exposure.idle.values():
        exposed = exposed | part
    return Timeline(
        span_ms=(end - begin) / 1e6,
        lanes=_lanes(trace, begin),
        waits=_spans(waits, begin),
        idle=_spans(everything.idle, begin),
        exposed=_spans(exposed, begin),
        copy_ms=everything.copies.length / 1e6,
        overlap=everything.overlap,
        notes=trace.notes,
    )


def filled(spans: Spans, start_ms: float, end_ms: float, num_pixels: int) -> Fills:
    """How full each pixel of a window is, pixels of one fullness joined: at most one a pixel.

    A pixel that an event touches is never empty, so that no event is lost from view, and one with
    a gap is never full, so that short gaps between thousands of kernels are seen.
    """
    if not spans or end_ms <= start_ms:
        return ()
    starts, ends = np.array(spans, dtype=np.float64).T
    edges = np.linspace(start_ms, end_ms, num_pixels + 1)
    before = np.concatenate(([0.0], np.cumsum(ends - starts)))
    reached = np.searchsorted(starts, edges, side="right")
    # Time in spans that began before each edge, less what of the last one lies beyond it.
    beyond = np.maximum(ends[np.maximum(reached - 1, 0)] - edges, 0.0)
    busy = np.diff(before[reached] - np.where(reached > 0, beyond, 0.0))
    share = np.clip(busy / (edges[1] - edges[0]), 0.0, 1.0)
    level = np.where(share >= 1 - 1e-6, LEVELS, np.floor(share * LEVELS))
    touched = np.diff(np.searchsorted(starts, edges, side="left")) > 0
    level = np.where((level == 0) & (touched | (share > 0)), 1, level)
    changes = np.flatnonzero(np.diff(level)) + 1
    runs = zip([0, *changes.tolist()], [*changes.tolist(), num_pixels], strict=True)
    return tuple(
        (float(edges[first]), float(edges[last]), float(level[first]) / LEVELS)
        for first, last in runs
        if level[first]
    )


def visible(spans: Spans, start_ms: float, end_ms: float, num_pixels: int) -> Spans:
    """The spans inside a window that are a pixel or wider, as they are.

    For what is shaded behind the lanes: joined, many short gaps would read as one long one.
    """
    pixel_ms = (end_ms - start_ms) / num_pixels
    clipped = ((max(start, start_ms), min(end, end_ms)) for start, end in spans)
    return tuple(span for span in clipped if span[1] - span[0] >= pixel_ms)


def summary_rows(timelines: Sequence[tuple[str, Timeline]]) -> tuple[SummaryRow, ...]:
    """One row a timeline."""
    return tuple(
        SummaryRow(
            name=name,
            span_ms=timeline.span_ms,
            idle_ms=_length(timeline.idle),
            exposed_ms=_length(timeline.exposed),
            num_waits=len(timeline.waits),
            copy_ms=timeline.copy_ms,
            overlap=timeline.overlap,
        )
        for name, timeline in timelines
    )


def summary_words(rows: Sequence[SummaryRow]) -> str:
    """The same in a sentence for each."""
    return "; ".join(
        f"{row.name}: {figures.milliseconds(row.span_ms)}, "
        f"{figures.milliseconds(row.idle_ms)} idle, {row.num_waits} waits, "
        f"{figures.percent(row.overlap, signed=False)} of copy time beside a kernel"
        for row in rows
    )


def lane_rows(timeline: Timeline) -> tuple[LaneRow, ...]:
    """Lanes, waits and idle time in figures."""
    rows: list[tuple[str, str, Spans, int]] = [
        (lane.name, lane.work, lane.spans, lane.num_events) for lane in timeline.lanes
    ]
    rows += [
        ("host", "waiting for the device", timeline.waits, len(timeline.waits)),
        ("device", "idle", timeline.idle, len(timeline.idle)),
        ("device", "idle because of a wait", timeline.exposed, len(timeline.exposed)),
    ]
    out = []
    for name, work, spans, num_events in rows:
        busy_ms = _length(spans)
        out.append(
            LaneRow(
                lane=name,
                work=work,
                busy_ms=busy_ms,
                share=busy_ms / timeline.span_ms if timeline.span_ms else 0.0,
                num_events=num_events,
            )
        )
    return tuple(out)


def _length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def _lanes(trace: Trace, begin: int) -> tuple[Lane, ...]:
    device = trace.device
    works = device.kind != CUDA_SYNC
    communicates = communication_names(trace)[device.name]
    kernels = works & (device.kind == KERNEL)
    kinds: dict[Work, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {
        "compute": kernels & ~communicates,
        "communication": kernels & communicates,
        "copy": works & (device.kind == MEMCPY),
        "other": works & (device.kind != KERNEL) & (device.kind != MEMCPY),
    }
    used = [int(stream) for stream in np.unique(device.stream[works])]
    busiest = sorted(used, key=lambda s: -int((works & (device.stream == s)).sum()))[:MAX_STREAMS]
    lanes = []
    for stream in sorted(busiest):
        number, name = trace.streams[stream]
        for work, chosen in kinds.items():
            rows = chosen & (device.stream == stream)
            if rows.any():
                lanes.append(
                    Lane(
                        name=f"device {number} stream {name}",
                        work=work,
                        spans=_spans(
                            Intervals.union_of(device.start[rows], device.end[rows]), begin
                        ),
                        num_events=int(rows.sum()),
                    )
                )
    return tuple(lanes)


def _spans(intervals: Intervals, begin: int) -> Spans:
    start, end = intervals.start, intervals.end
    if len(start) > MAX_SPANS:
        # Close the narrowest gaps: what is left is as many spans as may be kept.
        gaps = start[1:] - end[:-1]
        open_gap = np.zeros(len(gaps), dtype=np.bool_)
        open_gap[np.argsort(gaps, kind="stable")[len(gaps) - MAX_SPANS + 1 :]] = True
        start = start[np.concatenate(([True], open_gap))]
        end = end[np.concatenate((open_gap, [True]))]
    pairs = zip(((start - begin) / 1e6).tolist(), ((end - begin) / 1e6).tolist(), strict=True)
    return tuple(pairs)


COLUMNS: Columns[LaneRow] = Columns(
    {
        "Lane": lambda row: row.lane,
        "Work": lambda row: row.work,
        "Time": lambda row: figures.milliseconds(row.busy_ms),
        "Share of the span": lambda row: figures.percent(row.share, signed=False),
        "Events": lambda row: f"{row.num_events:,}",
    }
)
SUMMARY: Columns[SummaryRow] = Columns(
    {
        "Timeline": lambda row: row.name,
        "Span": lambda row: figures.milliseconds(row.span_ms),
        "Device idle": lambda row: figures.milliseconds(row.idle_ms),
        "Because of a wait": lambda row: figures.milliseconds(row.exposed_ms),
        "Waits": lambda row: f"{row.num_waits:,}",
        "Copies": lambda row: figures.milliseconds(row.copy_ms),
        "Beside a kernel": lambda row: figures.percent(row.overlap, signed=False),
    }
)
