"""Tables that describe the device side of a trace: copies, kernels, streams, queue."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.columns import CUDA_SYNC, KERNEL, MEMCPY, UNKNOWN, Interner
from harness.audit.trace.device_timeline import device_time
from harness.audit.trace.links import NO_CALL
from harness.audit.trace.runtime_apis import ApiRole
from harness.audit.trace.waits import copy_kind
from harness.record.audit_report import CopySummary
from harness.record.trace_details import (
    SMALL_KERNEL_US,
    DeviceUse,
    ImplicitCalls,
    KernelTotal,
    QueueDepth,
    SmallKernels,
    StreamUse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.audit.trace.columns import Bool, Int64, Trace
    from harness.audit.trace.device_timeline import DeviceTime, QueueSteps
    from harness.audit.trace.waits import CopyKind, Waits

MILLISECOND = 1e6
"""Nanoseconds."""
_QUEUE_POINTS = 200
_MAX_STREAMS = 256


def to_ms(nanoseconds: float) -> float:
    """Nanoseconds as milliseconds."""
    return float(nanoseconds) / MILLISECOND


def copy_table(trace: Trace, waits: Waits, launcher: Int64, steps: int) -> tuple[CopySummary, ...]:
    """Copies by direction, memory kind and whether the host waited; figures per step."""
    device = trace.device
    copies = np.flatnonzero(device.kind == MEMCPY)
    waited = np.isin(copies, waits.copy)
    linked = launcher[copies] != NO_CALL
    groups: defaultdict[tuple[CopyKind, bool | None], list[Int64]] = defaultdict(list)
    for kind, of_kind in _rows_by_kind(trace, copies):
        unsure = kind.memory == "unknown" and kind.touches_host
        for blocking, chosen in (
            (True, waited),
            (None if unsure else False, ~waited & linked),
            (None, ~waited & ~linked),
        ):
            rows = copies[of_kind & chosen]
            if len(rows):
                groups[kind, blocking].append(rows)
    found = []
    for (kind, blocking), parts in groups.items():
        rows = np.concatenate(parts)
        duration = float((device.end[rows] - device.start[rows]).sum())
        sized = bool((device.num_bytes[rows] != UNKNOWN).all())
        num_bytes = int(device.num_bytes[rows].sum()) if sized else None
        found.append(
            CopySummary(
                direction=kind.direction,
                memory=kind.memory,
                blocking=blocking,
                count_per_step=len(rows) / steps,
                bytes_per_step=None if num_bytes is None else round(num_bytes / steps),
                duration_ms=to_ms(duration) / steps,
                bandwidth_gb_per_s=num_bytes / duration if num_bytes and duration else None,
            )
        )
    return tuple(sorted(found, key=lambda copy: -(copy.duration_ms or 0)))


def _rows_by_kind(trace: Trace, copies: Int64) -> Iterator[tuple[CopyKind, Bool]]:
    """Each kind of copy, and which of the given rows are of it."""
    kinds: Interner[CopyKind] = Interner()
    names, inverse = np.unique(trace.device.name[copies], return_inverse=True)
    of_name = np.array([kinds[copy_kind(trace.names[name])] for name in names], dtype=np.int64)
    for kind, number in kinds.items():
        yield kind, of_name[inverse] == number


def top_kernels(trace: Trace, limit: int = 20) -> tuple[KernelTotal, ...]:
    """Kernels by summed time over the whole trace."""
    device = trace.device
    kernels = device.kind == KERNEL
    names, inverse = np.unique(device.name[kernels], return_inverse=True)
    length = (device.end[kernels] - device.start[kernels]).astype(np.float64)
    total = np.bincount(inverse, weights=length, minlength=len(names))
    count = np.bincount(inverse, minlength=len(names))
    everything = total.sum()
    return tuple(
        KernelTotal(
            name=trace.names[names[index]],
            count=int(count[index]),
            total_ms=to_ms(total[index]),
            mean_us=float(total[index] / count[index]) / 1e3,
            share=float(total[index] / everything) if everything else 0.0,
        )
        for index in np.argsort(-total, kind="stable")[:limit].tolist()
    )


def small_kernels(trace: Trace) -> SmallKernels | None:
    """Share of kernels that take less time than a launch."""
    device = trace.device
    kernels = device.kind == KERNEL
    length = (device.end[kernels] - device.start[kernels]).astype(np.float64)
    if not len(length):
        return None
    small = length < SMALL_KERNEL_US * 1e3
    total = length.sum()
    return SmallKernels(
        threshold_us=SMALL_KERNEL_US,
        count_share=float(small.mean()),
        time_share=float(length[small].sum() / total) if total else 0.0,
        num_kernels=len(length),
    )


def stream_table(trace: Trace) -> tuple[StreamUse, ...]:
    """Use of the streams with most rows."""
    found = []
    streams, counts = np.unique(
        trace.device.stream[trace.device.kind != CUDA_SYNC], return_counts=True
    )
    for number in streams[np.argsort(-counts, kind="stable")][:_MAX_STREAMS]:
        rows = trace.device.stream == number
        time = device_time(trace, rows)
        if time is None:
            continue
        device, stream = trace.streams[number]
        found.append(
            StreamUse(
                device=str(device),
                stream=str(stream),
                busy_ms=to_ms(time.busy.length),
                compute_ms=to_ms(time.compute.length),
                communication_ms=to_ms(time.communication.length),
                copy_ms=to_ms(time.copies.length),
                num_kernels=int((rows & (trace.device.kind == KERNEL)).sum()),
            )
        )
    return tuple(sorted(found, key=lambda use: -use.busy_ms))


def device_table(names: list[str], devices: dict[int, DeviceTime]) -> tuple[DeviceUse, ...]:
    """Span, busy and idle of each device."""
    return tuple(
        DeviceUse(
            device=names[number],
            span_ms=to_ms(time.span),
            busy_ms=to_ms(time.busy.length),
            idle_ms=to_ms(time.idle.length),
        )
        for number, time in devices.items()
    )


def copies_on_compute_streams(trace: Trace) -> int:
    """Host-device copies queued on a stream that also runs kernels: they cannot overlap it."""
    device = trace.device
    with_kernels = np.unique(device.stream[device.kind == KERNEL])
    copies = np.flatnonzero(device.kind == MEMCPY)
    shared = np.isin(device.stream[copies], with_kernels)
    return sum(
        int((of_kind & shared).sum())
        for kind, of_kind in _rows_by_kind(trace, copies)
        if kind.touches_host
    )


def queue_table(steps: QueueSteps, time: DeviceTime) -> QueueDepth | None:
    """Depth of the launch queue over the span of one device, weighted by time."""
    edges = np.clip(steps.time, time.start, time.end)
    if len(edges) < 2 or time.span <= 0:
        return None
    weight = np.diff(np.concatenate((edges, [time.end])))
    depth = steps.depth.astype(np.float64)
    order = np.argsort(depth, kind="stable")
    reached = np.cumsum(weight[order])
    covered = int(reached[-1])
    if not covered:
        return None

    def quantile(share: float) -> float:
        index = int(np.searchsorted(reached, share * covered))
        return float(depth[order][min(index, len(depth) - 1)])

    moments = np.linspace(time.start, time.end, _QUEUE_POINTS + 1)
    area = np.concatenate(([0.0], np.cumsum(weight * depth)))
    bounds = np.concatenate((edges, [time.end])).astype(np.float64)
    means = np.diff(np.interp(moments, bounds, area)) / np.diff(moments)
    return QueueDepth(
        mean=float(area[-1] / covered),
        median=quantile(0.5),
        p90=quantile(0.9),
        maximum=int(depth.max()),
        empty_share=float(weight[depth == 0].sum() / covered),
        time_ms=tuple(((moments[:-1] - time.start) / MILLISECOND).round(6).tolist()),
        depth=tuple(means.round(4).tolist()),
    )


def implicit_calls(trace: Trace) -> tuple[ImplicitCalls, ...]:
    """Memory management calls by name."""
    calls = trace.calls
    chosen = calls.role == ApiRole.ALLOCATOR
    found = []
    for name in np.unique(calls.name[chosen]):
        rows = chosen & (calls.name == name)
        total = float((calls.end[rows] - calls.start[rows]).sum())
        found.append(
            ImplicitCalls(api=trace.names[name], count=int(rows.sum()), total_ms=to_ms(total))
        )
    return tuple(sorted(found, key=lambda call: -call.total_ms))
