"""Carries out the runs that published claims need, one after another, by a deadline."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.bench_run import carry_out, make_plan
from gapless.published_models import published_models
from harness.bench.interrupts import Interrupts
from harness.bench.runner import require_timing
from harness.errors import UsageError
from harness.tables.claim_rows import ReproduceRow, rows_from_records
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from gapless.arms import Choices
    from gapless.published_runs import ClaimRun
    from harness.bench.child_events import Progress
    from harness.bench.plan import BenchPlan
    from harness.record.records import Claim, RunRecord

MIN_BUDGET_S = 4.0
"""Less than this leaves too few blocks to say anything."""
GRACE_S = 10.0
"""A run that is this much past the deadline is killed; what it measured is kept."""
FIRST_OVERHEAD_S = 9.0
"""Start, build and memory pass of the first run, before one has been seen."""


@dataclass
class Sweep:
    """What came of it."""

    records: list[RunRecord] = field(default_factory=list)
    needs: dict[str, str] = field(default_factory=dict)
    """Claim id -> why there is no record."""
    stop_code: int | None = None
    """The exit code of the signal that ended the sweep early."""

    @property
    def exit_code(self) -> int:
        """130 or alike where a signal ended it; 3 a workload failed; 2 nothing could be measured;
        1 an arm fails parity; 0 otherwise."""
        if self.stop_code is not None:
            return self.stop_code
        if not self.records:
            return 2
        if any(record.status == "failed" for record in self.records):
            return 3
        return int(any(not check.passed for record in self.records for check in record.parity))

    def rows(self, claims: Sequence[Claim]) -> tuple[ReproduceRow, ...]:
        """One row a claim."""
        return rows_from_records(
            claims, self.records, needs=self.needs, modelled=published_models()
        )


def sweep_claims(
    runs: Sequence[ClaimRun],
    choices: Choices,
    *,
    device: str,
    fit: str,
    seconds: float,
    precision: float,
    thorough: bool,
    store: str | None,
    keep_timelines: bool = True,
    show: Callable[[str, float], AbstractContextManager[Callable[[Progress], None]]],
    now: Callable[[], float] = time.monotonic,
) -> Sweep:
    """Run each in turn within `seconds` in all, sharing what is left evenly among those to come.

    `thorough` warms up longer and, after the timed blocks, measures memory and counts syncs. A run
    that cannot take place leaves its reason in `needs` and the others go on. Raises `StoreError`,
    and `UsageError` where none can take place.

    Narrow runs on a CPU compute on one thread: their ops are too small to share, and the reload
    needs a core to copy on beside it.
    """
    require_timing()
    sweep, overhead_s, deadline_s = Sweep(), FIRST_OVERHEAD_S, now() + seconds
    with Interrupts() as interrupts:
        for number, run in enumerate(runs):
            began_s = now()
            left_s = deadline_s - began_s
            share_s = left_s / (len(runs) - number)
            if interrupts.count:
                _skip(sweep, run, "Not measured: the sweep was interrupted before its turn.")
                continue
            if left_s < FIRST_OVERHEAD_S + MIN_BUDGET_S:
                _skip(
                    sweep,
                    run,
                    "Not measured: no time was left; give more --seconds, or name it with --only.",
                )
                continue
            budget_s = max(MIN_BUDGET_S, share_s - overhead_s)
            label = f"{number + 1}/{len(runs)} {run.label}"
            try:
                plan = _plan(
                    run,
                    choices,
                    BuildOptions.from_mapping({**run.options(fit), "device": device}),
                    thorough=thorough,
                    budget_s=budget_s,
                    precision=precision,
                    keep_timelines=keep_timelines,
                    timeout_s=min(left_s, 1.5 * share_s) + GRACE_S,
                )
                with show(label, left_s - share_s) as on_progress:
                    record = carry_out(
                        plan, store=store, on_progress=on_progress, interrupts=interrupts
                    )
            except UsageError as error:
                _skip(sweep, run, f"Not measured: {error}")
                continue
            sweep.records.append(record)
            beside_budget_s = now() - began_s - budget_s
            if beside_budget_s > 0:  # otherwise it was precise before its budget ended
                overhead_s = beside_budget_s
        sweep.stop_code = interrupts.exit_code if interrupts.count else None
    return sweep


def _plan(
    run: ClaimRun, choices: Choices, options: BuildOptions, *, thorough: bool, **limits: Any
) -> BenchPlan:
    narrow_cpu = (options.device, options.fit) == ("cpu", "narrow")
    return make_plan(
        get(run.scenario),
        run.arms(choices),
        options,
        phases=tuple(dict.fromkeys(claim.phase for claim in run.claims)),
        claims=run.claims,
        num_threads=1 if narrow_cpu else None,
        warmup_steps=2 if thorough else 1,
        measure_memory=thorough,
        measure_syncs=thorough,
        command=f"gapless reproduce --only {run.claims[0].id}",
        **limits,
    )


def _skip(sweep: Sweep, run: ClaimRun, reason: str) -> None:
    sweep.needs.update({claim.id: reason for claim in run.claims})
