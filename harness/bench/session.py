"""The sequence of one run, in the process it is called in: build, compare, inspect.

Everything timed shares one workload and one set of attachments, toggled in place. Memory and syncs
come last: they are not needed for a verdict.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.bench.arm_switch import check_requirements, resolve_arms
from harness.bench.child_events import Built, Ended, Event, MachineSeen, Stage
from harness.bench.comparing import compare_arms
from harness.bench.inspection import inspect_arms, inspects
from harness.bench.plan import BenchPlan, import_object
from harness.bench.timed_device import Backend, open_backend
from harness.bench.training_state import seed_everything
from harness.bench.turns import Stopped, Turns
from harness.errors import UsageError
from harness.machine.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.workload import Optimization, Workload


def measure(
    plan: BenchPlan,
    emit: Callable[[Event], None],
    should_stop: Callable[[], bool],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Carry out a plan and `emit` events as they happen; the last one is `Ended`.

    `should_stop` is asked between steps; `now` gives seconds for the budget. Raises `UsageError`
    for a plan that cannot run here, and whatever the workload raises.
    """
    emit(Stage(name="build"))
    with open_backend(plan) as backend:
        emit(MachineSeen(machine=describe_machine(plan.device)))
        workload, optimizations = _build(plan, backend, emit)
        choices = resolve_arms(plan.arms, optimizations)
        check_requirements(choices, optimizations, workload.model)
        turns = Turns(plan, backend, workload, optimizations, choices, emit, should_stop, now)
        began_s = now()
        try:
            with _quiet_gc():
                cause = compare_arms(
                    turns, deadline_s=began_s + plan.budget_s, inspects=inspects(plan)
                )
                inspect_arms(turns, began_s)
        except Stopped:
            cause = "stopped"
        emit(Ended(cause=cause))


def _build(
    plan: BenchPlan, backend: Backend, emit: Callable[[Event], None]
) -> tuple[Workload, dict[str, Optimization]]:
    seed_everything(plan.seed)
    workload: Workload
    optimizations: dict[str, Optimization]
    workload, optimizations = import_object(plan.factory)(plan.spec)
    if workload.device.type != backend.device_type:
        raise UsageError(
            f"The workload is on {workload.device.type} but the run is timed on "
            f"{plan.device}; give both the same device."
        )
    emit(
        Built(
            scenario=workload.describe(),
            num_tokens=workload.num_tokens,
            source=backend.source,
        )
    )
    return workload, optimizations


@contextmanager
def _quiet_gc() -> Iterator[None]:
    """No collection unless asked for; what lives now (torch, the model) is not looked at again, so
    that the one collection before each step is short."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
