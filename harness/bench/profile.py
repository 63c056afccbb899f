"""A profiled pass on CUDA: never timed, and timed blocks are never profiled.

The profiler's trace goes through the same analysis as any trace a user brings, so that a sync, its
exposed time and the overlap mean the same in a run as in an audit.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.audit.portable import portable
from harness.audit.trace.load import load_trace
from harness.audit.trace.trace_audit import Analysis, analyse, report_of
from harness.bench.sync_probe import SyncsSeen
from harness.clock.intervals import Intervals
from harness.findings.finding_catalogue import with_findings
from harness.record.records import Overlap, Phase, Source, SyncCount

if TYPE_CHECKING:
    from harness.workload import Workload

_LABEL = "gapless."
_TIMED: tuple[Phase, ...] = ("forward", "backward", "optimizer")
_NS_PER_MS = 1e6


class CudaSyncProbe:
    """Counts syncs and overlap of the selected arm with `torch.profiler`."""

    def __init__(self, device: torch.device, source: Source, num_steps: int = 2) -> None:
        self._device = device
        self._source = source
        self._num_steps = num_steps

    def __call__(self, workload: Workload, arm: str) -> SyncsSeen:
        torch.cuda.synchronize(self._device)
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities, acc_events=True) as profiler:
            for number in range(self._num_steps):
                run_labelled_step(workload, number)
            # The profiler itself waits for the device before it stops, which the analysis knows.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            seen = summarise_trace(path, self._num_steps, arm=arm, source=self._source)
            return seen._replace(trace=gzip.compress(path.read_bytes(), mtime=0))


def run_labelled_step(workload: Workload, number: int) -> None:
    """One step whose phases can be told apart in a trace, marked as the profiler marks steps."""
    with record_function(f"ProfilerStep#{number}"):
        with record_function(_LABEL + "forward"):
            workload.forward()
        with record_function(_LABEL + "backward"):
            workload.backward()
        with record_function(_LABEL + "optimizer"):
            workload.optimizer_step()


def summarise_trace(path: Path, num_steps: int, *, arm: str, source: Source) -> SyncsSeen:
    """Syncs of one step by phase and by site, and overlap, from a trace of labelled steps.

    Each sync belongs to the phase in whose time on the host it began, whichever its thread; what
    lies outside all phases, such as the final synchronise, belongs to none.
    """
    analysis = analyse(load_trace(path))
    phases = {phase: _phase_time(analysis, (phase,)) for phase in _TIMED}
    phases["batch"] = _phase_time(analysis, _TIMED)
    syncs = tuple(
        _count(analysis, time, num_steps, arm=arm, phase=phase, source=source)
        for phase, time in phases.items()
    )
    report = portable(with_findings(report_of(analysis, arm)))
    device = analysis.everything
    if device is None:
        return SyncsSeen(syncs, audit=report)
    overlap = Overlap(
        arm=arm,
        overlap=device.overlap,
        copy_ms=device.copies.length / _NS_PER_MS / num_steps,
        idle_ms=(device.span - device.busy.length) / _NS_PER_MS / num_steps,
        source=source,
    )
    return SyncsSeen(syncs, (overlap,), report)


def _phase_time(analysis: Analysis, phases: tuple[Phase, ...]) -> Intervals:
    """The host's time in these phases, over all steps."""
    labels = {_LABEL + phase for phase in phases}
    marks = analysis.trace.annotations
    rows = np.array([analysis.trace.names[name] in labels for name in marks.name], dtype=np.bool_)
    return Intervals.union_of(marks.start[rows], marks.end[rows])


def _count(
    analysis: Analysis, time: Intervals, num_steps: int, *, arm: str, phase: Phase, source: Source
) -> SyncCount:
    waits, exposure = analysis.waits, analysis.exposure
    inside = time.contains(waits.start)
    blocked = Intervals.union_of(waits.start[inside], waits.end[inside])
    exposed_ms = float(exposure.exposed[inside].sum()) / _NS_PER_MS / num_steps
    return SyncCount(
        arm=arm,
        phase=phase,
        count=int(inside.sum()) / num_steps,
        source=source,
        method="profiler",
        blocked_ms=blocked.length / _NS_PER_MS / num_steps,
        exposed_ms=None if analysis.everything is None else exposed_ms,
    )
