"""A profiled pass on CUDA: never timed, and timed blocks are never profiled.

Goes through the profiler's exported trace, its only documented form with correlation ids.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.bench.syncs import (
    DeviceWork,
    HostCall,
    ProfiledSteps,
    WorkKind,
    count_syncs,
    measure_overlap,
)

if TYPE_CHECKING:
    from harness.records import Overlap, Phase, Source, SyncCount
    from harness.workload import Workload

_PREFIX = "gapless."
_WORK_KINDS: dict[str, WorkKind] = {
    "kernel": "compute",
    "gpu_memcpy": "copy",
    "gpu_memset": "memset",
}
_HOST_CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime")


class CudaSyncProbe:
    """Counts syncs and overlap of the selected arm with `torch.profiler`."""

    def __init__(self, device: torch.device, source: Source, num_steps: int = 2) -> None:
        self._device = device
        self._source = source
        self._num_steps = num_steps

    def __call__(
        self, workload: Workload, arm: str
    ) -> tuple[tuple[SyncCount, ...], tuple[Overlap, ...]]:
        steps = profile_steps(workload, self._device, self._num_steps)
        overlap = measure_overlap(steps, arm=arm, source=self._source)
        return (
            count_syncs(steps, arm=arm, source=self._source),
            () if overlap is None else (overlap,),
        )


def profile_steps(workload: Workload, device: torch.device, num_steps: int) -> ProfiledSteps:
    """Run steps of the selected arm on a CUDA device under the profiler."""
    torch.cuda.synchronize(device)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        for _ in range(num_steps):
            run_labelled_step(workload)
        torch.cuda.synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return parse_trace(path.read_bytes(), num_steps)


def run_labelled_step(workload: Workload) -> None:
    """One step whose phases the profiler can tell apart."""
    with record_function(_PREFIX + "forward"):
        workload.forward()
    with record_function(_PREFIX + "backward"):
        workload.backward()
    with record_function(_PREFIX + "optimizer"):
        workload.optimizer_step()


class _TraceEvent(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: Any = ""
    ts: float = 0.0
    dur: float = 0.0
    tid: Any = 0
    args: dict[str, Any] | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_TraceEvent]  # noqa: N815 - the trace format's own name


def parse_trace(content: bytes, num_steps: int) -> ProfiledSteps:
    """The phases, runtime calls and device work in an exported profiler trace."""
    phases: list[tuple[Phase, tuple[int, int]]] = []
    calls: list[HostCall] = []
    work: list[DeviceWork] = []
    for event in msgspec.json.decode(content, type=_Trace).traceEvents:
        if event.ph != "X":
            continue
        start_ns = round(event.ts * 1000)
        end_ns = start_ns + round(event.dur * 1000)
        correlation = (event.args or {}).get("correlation")
        if event.cat == "user_annotation" and event.name.startswith(_PREFIX):
            phase = cast("Phase", event.name.removeprefix(_PREFIX))
            phases.append((phase, (start_ns, end_ns)))
        elif event.cat in _WORK_KINDS:
            kind = _WORK_KINDS[event.cat]
            work.append(DeviceWork(kind, event.name, start_ns, end_ns, correlation))
        elif event.cat in _HOST_CALLS:
            calls.append(HostCall(event.name, start_ns, end_ns, event.tid, correlation))
    return ProfiledSteps(tuple(phases), tuple(calls), tuple(work), num_steps)
