"""`gapless selftest`: what the verdicts are worth on this machine, as it is now."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.options import JsonOption
from gapless.cli.results import results_of
from harness.errors import UsageError


def command(
    trials: Annotated[
        int, typer.Option("--trials", help="Comparisons with each slow-down, 1 to 1000.")
    ] = 10,
    json: JsonOption = False,
) -> None:
    """Say what this machine can tell apart.

    Compares a small workload with itself, and with itself slowed by 3 % and 10 %, as a run does.
    """
    if not 1 <= trials <= 1000:
        raise UsageError(f"--trials {trials} is out of range; give 1 to 1000.")
    from gapless.injected import in_words, outcome_table, outcomes, run_trials

    with results_of(json) as results:
        found = outcomes(run_trials(trials))
        results.table(outcome_table(found))
        results.text(in_words(found))
        results.document(found)
