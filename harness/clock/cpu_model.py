"""The virtual clock against this machine's own CPU: the check that every machine can repeat.

A step runs once under a dispatch mode that prices each op with the calibrated costs of the CPU,
and several times without it under a real clock. A CPU computes on the thread that calls, so the
modelled time of a phase is the sum of what its ops cost.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.clock.calibration_kernels import WorkCounter, clock_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.clock.costs import Costs
    from harness.record.records import Phase
    from harness.workload import Workload

_WARMUP_STEPS = 3
PHASES: tuple[Phase, ...] = ("forward", "backward")


@dataclass(frozen=True)
class PhaseCheck:
    """One phase of one workload, modelled and measured on this CPU."""

    workload: str
    phase: Phase
    modelled_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Modelled over measured, less one."""
        return self.modelled_ms / self.measured_ms - 1


def check_phases(
    name: str, workload: Workload, costs: Costs, *, num_steps: int = 7
) -> tuple[PhaseCheck, ...]:
    """Forward and backward of `workload`; measured is the median of `num_steps` steps."""
    now_ns = clock_of(workload.device)
    for _ in range(_WARMUP_STEPS):
        _timed_step(workload, now_ns)
    times = [_timed_step(workload, now_ns) for _ in range(num_steps)]
    modelled = {
        "forward": _priced_ms(workload.forward, costs),
        "backward": _priced_ms(workload.backward, costs),
    }
    workload.zero_grad()
    return tuple(
        PhaseCheck(name, phase, modelled[phase], statistics.median(t[phase] for t in times))
        for phase in PHASES
    )


def _timed_step(workload: Workload, now_ns: Callable[[], int]) -> dict[Phase, float]:
    began = now_ns()
    workload.forward()
    between = now_ns()
    workload.backward()
    ended = now_ns()
    workload.zero_grad()
    return {"forward": (between - began) / 1e6, "backward": (ended - between) / 1e6}


def _priced_ms(run: Callable[[], object], costs: Costs) -> float:
    with WorkCounter() as counter:
        run()
    total_ns = sum(
        costs.host.op_ns(work, in_autograd) + costs.kernel_ns(work)
        for work, in_autograd in counter.works
    )
    return total_ns / 1e6
