"""A host and a device that know the truth: they write a trace and say what each wait cost.

The host runs a list of steps one after the other; every stream runs its kernels in order. The same
program run again without some of its waits shows what they really cost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

LAUNCH_US = 5
"""Host time of one launch; the kernel arrives when the call returns."""
WAKE_US = 3
"""From the end of the device work until the host runs again."""


@dataclass(frozen=True)
class Step:
    """`launch`: a kernel of `length_us`; `wait`: a synchronise; `work`: host time; `read`: a
    pageable device-to-host copy of `length_us` and its stream synchronise, inside one op."""

    kind: Literal["launch", "wait", "work", "read"]
    length_us: int = 0
    stream: int = 7


@dataclass
class Simulation:
    """Result of one run. Times in microseconds."""

    events: list[dict[str, Any]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    kernels: list[tuple[int, int]] = field(default_factory=list)

    @property
    def span_us(self) -> int:
        return max(end for _, end in self.kernels) - min(start for start, _ in self.kernels)

    @property
    def busy_us(self) -> int:
        return len({t for start, end in self.kernels for t in range(start, end)})

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path


def simulate(program: Sequence[Step], without: Collection[int] = ()) -> Simulation:
    """Run the program; waits whose number is in `without` take no time and leave no event."""
    run = Simulation()
    host, correlation, wait = 1_000, 0, 0
    free: dict[int, int] = {}

    def call(name: str, start: int, end: int, number: int) -> None:
        run.events.append(_row("cuda_runtime", name, 100, 100, start, end, correlation=number))

    def device(cat: str, name: str, arrival: int, step: Step) -> int:
        start = max(arrival, free.get(step.stream, 0))
        end = free[step.stream] = start + step.length_us
        run.kernels.append((start, end))
        run.events.append(
            _row(cat, name, 0, step.stream, start, end, correlation=correlation, device=0)
            | {"args": {"correlation": correlation, "device": 0, "stream": step.stream, "bytes": 4}}
        )
        return end

    for step in program:
        if step.kind == "work":
            host += step.length_us
            continue
        correlation += 1
        if step.kind == "launch":
            call("cudaLaunchKernel", host, host + LAUNCH_US, correlation)
            host += LAUNCH_US
            device("kernel", f"kernel_{step.length_us}", host, step)
            continue
        begin = host
        done = max(free.values(), default=0)
        if step.kind == "read":
            done = device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", host + LAUNCH_US, step)
        back = max(host + LAUNCH_US if step.kind == "read" else host, done + WAKE_US)
        if wait not in without:
            if step.kind == "read":
                call("cudaMemcpyAsync", begin, back - 1, correlation)
                correlation += 1
                call("cudaStreamSynchronize", back - 1, back, correlation)
                run.events.append(_row("cpu_op", "aten::item", 100, 100, begin, back))
                run.events.append(
                    _row("cpu_op", "aten::_local_scalar_dense", 100, 100, begin, back)
                )
            else:
                call("cudaStreamSynchronize", begin, back, correlation)
            run.waits.append((begin, back))
            host = back
        elif step.kind == "read":
            call("cudaMemcpyAsync", begin, begin, correlation)
        wait += 1
    return run


def _row(
    cat: str, name: str, pid: int, tid: int, start: int, end: int, **args: int
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": end - start,
        "args": args,
    }
