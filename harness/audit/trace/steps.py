"""Profiler steps: where they are, and what happened in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harness.audit.trace.owners import is_step
from harness.audit.trace.use_tables import to_ms
from harness.audit.trace.waits import process_numbers
from harness.record.trace_details import StepUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.trace.columns import Trace
    from harness.audit.trace.device_timeline import DeviceTime
    from harness.audit.trace.exposure import Exposure
    from harness.audit.trace.waits import Waits


class Step(NamedTuple):
    """One `ProfilerStep#` mark on the host, nanoseconds."""

    start: int
    end: int
    name: str
    process: int


def find_steps(trace: Trace) -> tuple[Step, ...]:
    """Marks of all processes in time order. Traces of 2021 file them under the ops."""
    marks = np.array([is_step(name) for name in trace.names], dtype=np.bool_)
    processes = process_numbers(trace)
    steps = []
    for table in (trace.annotations, trace.ops):
        rows = np.flatnonzero(marks[table.name] if len(table) else marks[:0])
        steps += [
            Step(
                int(table.start[row]),
                int(table.end[row]),
                trace.names[table.name[row]],
                int(processes[table.thread[row]]),
            )
            for row in rows
        ]
    return tuple(sorted(steps))


def step_table(
    steps: Sequence[Step], waits: Waits, exposure: Exposure, time: DeviceTime | None
) -> tuple[StepUse, ...]:
    """Syncs and device time of each step. A sync belongs to the step in which it begins."""
    found = []
    for step in steps:
        inside = (waits.start >= step.start) & (waits.start < step.end)
        busy = 0 if time is None else time.busy.within(step.start, step.end).length
        found.append(
            StepUse(
                name=step.name,
                duration_ms=to_ms(step.end - step.start),
                syncs=int(inside.sum()),
                blocked_ms=to_ms(waits.blocked[inside].sum()),
                exposed_ms=to_ms(exposure.exposed[inside].sum()),
                device_busy_ms=to_ms(busy),
            )
        )
    return tuple(found)
