"""From a trace to an `AuditReport`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.audit.trace import use_tables as tables
from harness.audit.trace.columns import CUDA_SYNC
from harness.audit.trace.device_timeline import (
    DeviceTime,
    QueueSteps,
    device_numbers,
    device_time,
    queue_steps,
    split_idle,
)
from harness.audit.trace.exposure import (
    Exposure,
    Launches,
    device_of_waits,
    find_exposure,
    find_launches,
)
from harness.audit.trace.links import NO_CALL, launching_calls
from harness.audit.trace.load import times_of
from harness.audit.trace.owners import find_owners
from harness.audit.trace.patterns import find_polling, repeated_uploads
from harness.audit.trace.replay import replay_without
from harness.audit.trace.sites import SiteGroup, group_sites, site_cost, site_row
from harness.audit.trace.steps import Step, find_steps, step_table
from harness.audit.trace.use_tables import to_ms
from harness.audit.trace.waits import Waits, blocked_time, count_api_calls, find_waits
from harness.boundary.foreign_text import visible_struct
from harness.clock.intervals import Intervals
from harness.counts import counted
from harness.record.audit_report import AuditReport, AuditTimeline
from harness.record.trace_details import TraceDetails

if TYPE_CHECKING:
    from harness.audit.trace.columns import Int64, Trace
    from harness.audit.trace.owners import Owner


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything derived from one trace; the report, the annotated trace and others read it."""

    trace: Trace
    launcher: Int64
    """For each device row the call that queued it."""
    launches: Launches
    waits: Waits
    """The profiler's own left out."""
    num_own: int
    owners: list[Owner]
    sites: list[SiteGroup]
    exposure: Exposure
    device_names: list[str]
    devices: dict[int, DeviceTime]
    everything: DeviceTime | None
    """All devices together."""
    queues: dict[int, QueueSteps]
    steps: tuple[Step, ...]
    num_steps: int | None
    """Steps of one process; `None` where the trace marks none."""


def analyse(trace: Trace) -> Analysis:
    """Find syncs, owners and costs."""
    launcher = launching_calls(trace.calls, trace.device)
    every_wait = find_waits(trace, launcher)
    waits = every_wait.where(~every_wait.own)
    device_names, device_of_row = device_numbers(trace)
    times = {
        number: device_time(trace, device_of_row == number) for number in range(len(device_names))
    }
    devices = {number: time for number, time in times.items() if time is not None}
    everything = next(iter(devices.values())) if len(devices) == 1 else device_time(trace)
    launches = find_launches(trace, launcher, device_of_row)
    default = next(iter(devices), 0)
    wait_device = device_of_waits(trace, waits, launches, device_of_row, default)
    exposure = find_exposure(trace, waits, wait_device, launches, devices)
    owners = find_owners(trace, waits)
    steps = find_steps(trace)
    return Analysis(
        trace=trace,
        launcher=launcher,
        launches=launches,
        waits=waits,
        num_own=int(every_wait.own.sum()),
        owners=owners,
        sites=group_sites(trace, waits, owners, exposure),
        exposure=exposure,
        device_names=device_names,
        devices=devices,
        everything=everything,
        queues={n: queue_steps(trace, launcher, device_of_row == n) for n in devices},
        steps=steps,
        num_steps=max(Counter(step.process for step in steps).values(), default=None),
    )


def report_of(analysis: Analysis, target: str) -> AuditReport:
    """The report of one trace."""
    trace, waits, exposure = analysis.trace, analysis.waits, analysis.exposure
    steps = analysis.num_steps or 1
    outside = _outside_steps(analysis)
    notes = list(trace.notes)
    if analysis.everything is None:
        notes.append("the trace holds no device activity; device figures are unknown")
    if analysis.num_steps is None:
        notes.append("the trace marks no profiler steps; per-step figures are for the whole trace")
    if outside:
        notes.append(f"{outside:,} of {counted(len(waits), 'sync')} outside the marked steps")
    if any(site.owner.cause is not None for site in analysis.sites):
        notes.append("lines are where a function begins; the profiler records no call lines")
    report = AuditReport(
        source="trace",
        times=times_of(trace),
        target=target,
        device=device_label(trace, analysis.device_names),
        steps=analysis.num_steps,
        syncs_per_step=len(waits) / steps,
        sites=tuple(site_row(trace, waits, g, exposure, steps) for g in analysis.sites),
        copies=tables.copy_table(trace, waits, analysis.launcher, steps),
        api_calls=count_api_calls(trace),
        profiler_own=analysis.num_own,
        timeline=_timeline(analysis),
        notes=tuple(notes),
        unjudged=_unjudged(analysis),
        trace=_details(analysis, outside),
    )
    return visible_struct(report)


def _outside_steps(analysis: Analysis) -> int | None:
    if analysis.num_steps is None:
        return None
    marked = Intervals.union_of(
        np.array([step.start for step in analysis.steps], dtype=np.int64),
        np.array([step.end for step in analysis.steps], dtype=np.int64),
    )
    return int((~marked.contains(analysis.waits.start)).sum())


def _unjudged(analysis: Analysis) -> tuple[str, ...]:
    trace = analysis.trace
    said = []
    unlinked = int(((analysis.launcher == NO_CALL) & (trace.device.kind != CUDA_SYNC)).sum())
    work = int((trace.device.kind != CUDA_SYNC).sum())
    if work and unlinked > work // 2:
        said.append("most device work has no launching call in the trace; exposed time is a guess")
    if not len(trace.calls) and work:
        said.append("the trace holds no runtime calls, so that syncs cannot be seen")
    return tuple(said)


def device_label(trace: Trace, device_names: list[str]) -> str:
    """Name of the devices with work, from the metadata; their numbers where it names none."""
    properties = trace.metadata.get("deviceProperties")
    by_number: dict[str, str] = {}
    if isinstance(properties, list):
        for entry in properties:
            if isinstance(entry, dict) and entry.get("name"):
                by_number[str(entry.get("id"))] = str(entry["name"])
    vendor = "ROCm" if any(name.startswith("hip") for name in trace.names) else "CUDA"
    names = {by_number.get(device, f"{vendor} device {device}"): None for device in device_names}
    return ", ".join(names) or next(iter(by_number.values()), "unknown device")


def _timeline(analysis: Analysis) -> AuditTimeline:
    time = analysis.everything
    if time is None:
        return AuditTimeline()
    splits = [
        split_idle(
            analysis.trace,
            device,
            analysis.exposure.idle.get(number, Intervals.empty()),
            analysis.queues[number],
        )
        for number, device in analysis.devices.items()
    ]
    return AuditTimeline(
        span_ms=to_ms(time.span),
        busy_ms=to_ms(time.busy.length),
        idle_ms=to_ms(time.span - time.busy.length),
        overlap=time.overlap,
        communication_hidden=time.communication_hidden,
        idle_blocked_host_ms=to_ms(sum(split.blocked_host for split in splits)),
        idle_slow_host_ms=to_ms(sum(split.slow_host for split in splits)),
        idle_communication_ms=to_ms(sum(split.communication for split in splits)),
        idle_other_ms=to_ms(sum(split.other for split in splits)),
    )


def _details(analysis: Analysis, outside: int | None) -> TraceDetails:
    trace, waits, exposure = analysis.trace, analysis.waits, analysis.exposure
    steps = analysis.num_steps or 1
    time = analysis.everything
    replayed = replay_without(analysis.launches, waits, [g.waits for g in analysis.sites])
    idle = 0 if time is None else time.span - time.busy.length
    owned = sum(owner.kind != "none" for owner in analysis.owners)
    first = next(iter(analysis.devices), None)
    return TraceDetails(
        sites=tuple(
            site_cost(trace, waits, group, exposure, number, idle, replayed[number])
            for number, group in enumerate(analysis.sites)
        ),
        blocked_ms=to_ms(blocked_time(trace, waits).length),
        exposed_ms=to_ms(exposure.exposed.sum()),
        compute_ms=None if time is None else to_ms(time.compute.length),
        communication_ms=None if time is None else to_ms(time.communication.length),
        communication_exposed_ms=(
            None if time is None else to_ms((time.communication - time.compute).length)
        ),
        copy_ms=None if time is None else to_ms(time.copies.length),
        copy_exposed_ms=(
            None
            if time is None
            else to_ms((time.copies - time.compute - time.communication).length)
        ),
        copies_on_compute_stream=tables.copies_on_compute_streams(trace),
        steps=step_table(analysis.steps, waits, exposure, time),
        devices=tables.device_table(analysis.device_names, analysis.devices),
        streams=tables.stream_table(trace),
        queue=(
            None
            if first is None
            else tables.queue_table(analysis.queues[first], analysis.devices[first])
        ),
        small_kernels=tables.small_kernels(trace),
        top_kernels=tables.top_kernels(trace),
        polling=find_polling(trace, waits, analysis.sites, exposure),
        repeated_uploads=repeated_uploads(trace, analysis.launcher, steps),
        implicit_calls=tables.implicit_calls(trace),
        waits_outside_steps=outside,
        owned_share=owned / len(waits) if len(waits) else None,
    )


def rank_of(metadata: dict[str, Any]) -> int | None:
    """Rank of a distributed run, from the metadata of its trace."""
    info = metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) else None
