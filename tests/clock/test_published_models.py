"""The set-ups in which published rows are modelled, and the records of them that ship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.published_models import command_of, published_models
from gapless.published_runs import plan_runs
from harness.clock.gpus import find_gpu
from harness.tables.claim_rows import modelled_speedups
from scenarios.build_options import BuildOptions
from scenarios.published import CLAIMS
from scenarios.published_setups import SETUPS

if TYPE_CHECKING:
    from harness.record.records import Claim

RUNS = plan_runs(CLAIMS)


def test_every_published_row_has_setups_that_can_be_built() -> None:
    assert set(SETUPS) == {(run.optimization, run.scenario) for run in RUNS}
    for setups in SETUPS.values():
        for setup in setups:
            options = BuildOptions.from_mapping(setup.options)
            assert (options.fit, options.adapter) == ("full", "lora")
            assert find_gpu(setup.gpu).key == setup.gpu


def test_every_setup_ships_once_and_says_how_to_make_it_again() -> None:
    wanted = [
        command_of(run, number)
        for run in RUNS
        for number in range(len(SETUPS[run.optimization, run.scenario]))
    ]
    assert sorted(record.command for record in published_models()) == sorted(wanted)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_shipped_figures_hold_the_published_one(claim: Claim) -> None:
    found = modelled_speedups(claim, published_models())
    highest, lowest = found[0][1].speedup, found[-1][1].speedup
    if len(found) > 1:
        assert lowest <= (claim.value_high or claim.value)
        assert claim.value <= highest
    else:
        # One set-up: within 1.5 points, and the step within a quarter.
        assert abs(highest - claim.value) <= 0.015
        assert claim.baseline_steps_per_s is not None
        modelled_ms = found[0][1].baseline_median_ms
        assert abs(1e3 / modelled_ms / claim.baseline_steps_per_s - 1) <= 0.25


def test_the_page_is_of_the_records_that_ship() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "docs/model_validation.py", "--check"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
