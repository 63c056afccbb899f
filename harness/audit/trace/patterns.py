"""Raw evidence of patterns: polling loops, and the same upload made again and again."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from harness.audit.trace.columns import MEMCPY, UNKNOWN
from harness.audit.trace.links import NO_CALL
from harness.audit.trace.owners import module_frames, python_line, user_annotations
from harness.audit.trace.stacks import FrameKind, enclosing_stacks
from harness.audit.trace.use_tables import to_ms
from harness.audit.trace.waits import NO_COPY, copy_kind
from harness.record.sync_kinds import SyncKind
from harness.record.trace_details import PollingLoop, RepeatedUpload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Int64, Trace
    from harness.audit.trace.exposure import Exposure
    from harness.audit.trace.sites import SiteGroup
    from harness.audit.trace.stacks import Frame, Stack
    from harness.audit.trace.waits import Waits

MIN_READS = 4
"""Reads within one call that make a polling loop."""
SMALL_READ_BYTES = 4096
_SMALL_READS = (
    SyncKind.SCALAR_READ,
    SyncKind.BOOL_BRANCH,
    SyncKind.DYNAMIC_OUTPUT_SIZE,
    SyncKind.D2H_COPY,
)
MAX_UPLOADS = 200_000
"""Copies looked at; more would say nothing new."""


def _scope(stack: Stack) -> Frame | None:
    modules = module_frames(stack)
    if modules:
        return modules[-1]
    annotations = user_annotations(stack)
    return annotations[-1] if annotations else None


def find_polling(
    trace: Trace, waits: Waits, groups: Sequence[SiteGroup], exposure: Exposure
) -> tuple[PollingLoop, ...]:
    """Sites that read the device at least `MIN_READS` times within one module call."""
    found = []
    for number, group in enumerate(groups):
        if group.kind not in _SMALL_READS:
            continue
        per_call: defaultdict[Frame, list[int]] = defaultdict(list)
        for index in group.waits.tolist():
            scope = _scope(waits.stacks[index])
            copy = int(waits.copy[index])
            small = copy == NO_COPY or trace.device.num_bytes[copy] <= SMALL_READ_BYTES
            if scope is not None and small:
                per_call[scope].append(index)
        counts = [len(indices) for indices in per_call.values()]
        if not counts or max(counts) < MIN_READS:
            continue
        chosen = np.array([i for indices in per_call.values() for i in indices], dtype=np.int64)
        found.append(
            PollingLoop(
                site=number,
                scope=next(iter(per_call)).name,
                calls=len(counts),
                reads_per_call=sum(counts) / len(counts),
                max_reads_per_call=max(counts),
                blocked_ms=to_ms(waits.blocked[chosen].sum()),
                exposed_ms=to_ms(exposure.exposed[chosen].sum()),
            )
        )
    return tuple(found)


def repeated_uploads(trace: Trace, launcher: Int64, steps: int) -> tuple[RepeatedUpload, ...]:
    """Uploads of equal size and shape from one place, made more than once per step."""
    device = trace.device
    uploads = [
        name
        for name in np.unique(device.name[device.kind == MEMCPY])
        if copy_kind(trace.names[name]).direction == "h2d"
    ]
    rows = np.flatnonzero(np.isin(device.name, uploads) & (launcher != NO_CALL))[:MAX_UPLOADS]
    calls = launcher[rows]
    stacks = enclosing_stacks(
        trace, trace.calls.thread[calls], trace.calls.start[calls], trace.calls.end[calls]
    )
    groups: defaultdict[tuple[str, str | None, str | None, int, str], list[int]] = defaultdict(list)
    for row, stack in zip(rows.tolist(), stacks, strict=True):
        num_bytes = int(device.num_bytes[row])
        if num_bytes == UNKNOWN:
            continue
        ops = [frame for frame in stack if frame.kind is FrameKind.OP]
        shapes = [int(trace.ops.dims[frame.row]) for frame in ops]
        shape = next((trace.shapes[s] for s in reversed(shapes) if s != UNKNOWN), None) or None
        key = (
            ops[0].name if ops else trace.names[trace.calls.name[launcher[row]]],
            _place(stack),
            shape,
            num_bytes,
            copy_kind(trace.names[device.name[row]]).memory,
        )
        groups[key].append(row)
    found = [
        RepeatedUpload(
            op=op,
            where=where,
            shape=shape,
            bytes_per_copy=num_bytes,
            count_per_step=len(members) / steps,
            memory=memory,
            total_ms=to_ms((device.end[members] - device.start[members]).sum()),
        )
        for (op, where, shape, num_bytes, memory), members in groups.items()
        if len(members) > steps
    ]
    return tuple(sorted(found, key=lambda upload: -upload.count_per_step))


def _place(stack: Stack) -> str | None:
    """Innermost Python frame that is not torch's own, else the annotation."""
    for frame in reversed(stack):
        line = python_line(frame.name) if frame.kind is FrameKind.PYTHON else None
        if line is not None and line.package != "torch":
            return str(line)
    annotations = user_annotations(stack)
    return annotations[-1].name if annotations else None
