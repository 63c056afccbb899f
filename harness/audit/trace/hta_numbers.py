"""HolisticTraceAnalysis' numbers by its own rules (0.5.0), for readers who compare.

Where its rules differ from exact arithmetic: fractional time stamps are cut to whole microseconds
(start up, end down), the last profiler step is left out where there are two or more, `cuda_sync`
rows count as device work (a stream wait even as computation), and idle time is summed over streams.
One rule is left out: HTA takes any row with a `stream` argument for device work, host ops included.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.links import NO_CALL, launching_calls
from harness.audit.trace.load import load_trace, times_of
from harness.audit.trace.steps import find_steps
from harness.clock.intervals import Intervals
from harness.errors import UsageError
from harness.record.audit_report import Times
from harness.record.records import Record

if TYPE_CHECKING:
    from harness.audit.trace.columns import Bool, Int64, Trace
    from harness.audit.trace.limits import TraceLimits

_COMMUNICATION = re.compile(r"^nccl.*Kernel")
_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_NO_COMPUTATION = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")
_CONSECUTIVE_KERNEL_DELAY_US = 30


class HtaStreamIdle(Record, frozen=True, kw_only=True):
    """Idle time between neighbours on one stream, microseconds."""

    stream: str
    host_wait_us: float
    kernel_wait_us: float
    other_us: float


class HtaNumbers(Record, frozen=True, kw_only=True):
    """What HolisticTraceAnalysis prints for the trace. Times in microseconds."""

    idle_time_us: float
    compute_time_us: float
    non_compute_time_us: float
    kernel_time_us: float
    idle_time_pctg: float
    compute_time_pctg: float
    non_compute_time_pctg: float
    comp_comm_overlap_pctg: float | None
    idle_breakdown: tuple[HtaStreamIdle, ...]
    times: Times = "measured"
    """Whether a clock gave the times of the trace, or the emulator's model of one."""


def compat_hta(path: str | Path, *, limits: TraceLimits | None = None) -> HtaNumbers:
    """HTA's temporal breakdown, communication overlap and idle breakdown of one trace.

    Raises `UsageError` where the trace holds no device rows, as HTA fails there too.
    """
    trace = load_trace(Path(path), limits=limits)
    if not len(trace.device):
        raise UsageError(f"{path} holds no device activity, so HTA has no numbers for it")
    return hta_numbers(trace)


def hta_numbers(trace: Trace) -> HtaNumbers:
    """As `compat_hta`, for a trace that is already read."""
    launcher = launching_calls(trace.calls, trace.device)
    fractional = _has_fractions(trace)
    start, end = _rounded(trace.device.start, trace.device.end, fractional)
    kept = _before_last_step(trace, launcher, fractional)
    names = trace.names
    communication = _matching(names, _COMMUNICATION)[trace.device.name]
    memory = _matching(names, _MEMORY)[trace.device.name] & ~communication
    computation = ~_matching(names, _NO_COMPUTATION)[trace.device.name] & ~memory & ~communication
    span, busy = _merged(start[kept], end[kept])
    _, compute = _merged(start[kept & computation], end[kept & computation])
    _, moved = _merged(start[kept & communication], end[kept & communication])
    both = Intervals.union_of(
        start[kept & computation], end[kept & computation]
    ) & Intervals.union_of(start[kept & communication], end[kept & communication])
    idle, rest = span - busy, busy - compute
    if idle > span or compute > span or rest < 0:
        raise UsageError(
            "HolisticTraceAnalysis has no numbers for this trace: its rounding makes times "
            "negative and it stops with an AssertionError; leave out --compat"
        )
    overlap = both.length / moved if moved else None
    return HtaNumbers(
        idle_time_us=idle / 1e3,
        compute_time_us=compute / 1e3,
        non_compute_time_us=rest / 1e3,
        kernel_time_us=span / 1e3,
        idle_time_pctg=_percent(idle, span),
        compute_time_pctg=_percent(compute, span),
        non_compute_time_pctg=_percent(rest, span),
        comp_comm_overlap_pctg=None if overlap is None else round(100 * overlap, 2),
        idle_breakdown=_idle_breakdown(trace, launcher, start, end, kept, fractional),
        times=times_of(trace),
    )


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _matching(names: list[str], pattern: re.Pattern[str]) -> Bool:
    return np.array([pattern.match(name) is not None for name in names], dtype=np.bool_)


def _has_fractions(trace: Trace) -> bool:
    return any(bool((t.start % 1000).any()) for t in (trace.device, trace.calls, trace.ops))


def _rounded(start: Int64, end: Int64, fractional: bool) -> tuple[Int64, Int64]:
    if not fractional:
        return start, end
    return -(-start // 1000) * 1000, end // 1000 * 1000


def _merged(start: Int64, end: Int64) -> tuple[int, int]:
    """Span and busy time as HTA merges intervals: one that rounding left with a negative length
    and that overlaps nothing takes its length off the busy time."""
    if not len(start):
        return 0, 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    apart = start[1:] > np.maximum.accumulate(end)[:-1]
    first = np.concatenate(([0], np.flatnonzero(apart) + 1))
    last = np.maximum.reduceat(end, first)
    return int(last[-1] - start[0]), int((last - start[first]).sum())


def _before_last_step(trace: Trace, launcher: Int64, fractional: bool) -> Bool:
    """Device rows queued before the last of at least two profiler steps began."""
    steps = find_steps(trace)
    everything = np.ones(len(trace.device), dtype=np.bool_)
    if len({step.name for step in steps}) < 2:
        return everything
    begin = np.array([steps[-1].start], dtype=np.int64)
    last, _ = _rounded(begin, begin, fractional)
    called, _ = _rounded(trace.calls.start, trace.calls.end, fractional)
    if not len(called):
        return ~everything
    linked: Bool = launcher != NO_CALL
    before: Bool = called[np.maximum(launcher, 0)] < last[0]
    return linked & before


def _idle_breakdown(
    trace: Trace, launcher: Int64, start: Int64, end: Int64, kept: Bool, fractional: bool
) -> tuple[HtaStreamIdle, ...]:
    """Gaps between neighbours on each stream: the host was late, a short gap, or other."""
    no_sync = (
        kept & ~_matching(trace.names, re.compile(r".*Sync|Stream Wait Event"))[trace.device.name]
    )
    called, _ = _rounded(trace.calls.start, trace.calls.end, fractional)
    found = []
    for number in np.unique(trace.device.stream[no_sync]):
        rows = np.flatnonzero(no_sync & (trace.device.stream == number) & (launcher != NO_CALL))
        rows = rows[np.argsort(start[rows], kind="stable")]
        gap = start[rows[1:]] - end[rows[:-1]]
        late = called[launcher[rows[1:]]] > end[rows[:-1]]
        short = ~late & (gap < _CONSECUTIVE_KERNEL_DELAY_US * 1000)
        found.append(
            HtaStreamIdle(
                stream=str(trace.streams[number][1]),
                host_wait_us=float(gap[late].sum()) / 1e3,
                kernel_wait_us=float(gap[short].sum()) / 1e3,
                other_us=float(gap[~late & ~short].sum()) / 1e3,
            )
        )
    return tuple(found)
