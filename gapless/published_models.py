"""Modelled runs of the published rows at their real size: how they are made, and where they lie."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gapless.modelled import model_scenario
from gapless.shipped import shipped_results
from harness.record.store import Store
from scenarios.published_setups import SETUPS
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.arms import Choices
    from gapless.published_runs import ClaimRun
    from harness.bench.child_events import Progress
    from harness.record.records import RunRecord


def command_of(run: ClaimRun, number: int) -> str:
    """What models set-up `number` of a run again; names it in the record."""
    return f"python docs/model_validation.py --run {run.optimization}:{run.scenario}:{number}"


def model_claims(
    run: ClaimRun,
    number: int,
    choices: Choices,
    *,
    store: str | None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """The modelled record of the claims of one run in set-up `number`, at the real size."""
    setup = SETUPS[run.optimization, run.scenario][number]
    return model_scenario(
        get(run.scenario),
        run.arms(choices),
        setup.gpu,
        setup.options,
        store=store,
        claims=run.claims,
        command=command_of(run, number),
        keep_timelines=setup.keep_timelines,
        on_progress=on_progress,
    )


@cache
def published_models() -> tuple[RunRecord, ...]:
    """The modelled records that come with gapless, newest first."""
    return tuple(
        record
        for record in Store(str(shipped_results())).listing().records
        if record.source == "modelled"
        and record.status == "complete"
        and record.scenario.fit == "full"
    )
