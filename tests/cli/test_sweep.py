"""Runs one after another by a deadline: shares, what goes on after a failure, Ctrl-C."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from gapless import sweep as sweep_module
from gapless.published_runs import plan_runs
from gapless.sweep import GRACE_S, MIN_BUDGET_S, Sweep, sweep_claims
from harness.errors import UsageError
from harness.tables.claim_rows import reproduce_table
from harness.workload import Variant
from tests.toys.small_records import claim, parity, record

if TYPE_CHECKING:
    from harness.bench.plan import BenchPlan

CHOICES = {
    "packed-metadata": (
        Variant("per-layer", "baseline", "Rebuilt in each layer."),
        Variant("cached", "published", "Once a batch."),
        Variant("collator", "beyond", "No read."),
    )
}
SCENARIOS = ("qwen3-14b-packed-sft", "llama3.2-1b-packed-sft", "qwen3-0.6b-packed-sft")
CLAIMS = tuple(claim(f"c{number}", scenario=name) for number, name in enumerate(SCENARIOS))


@dataclass
class World:
    """A clock, and runs that take the budget and `overhead_s` beside it."""

    overhead_s: float = 5.0
    now_s: float = 1000.0
    slow: dict[str, float] = field(default_factory=dict)
    """Scenario -> seconds that its run takes besides."""
    errors: dict[str, Exception] = field(default_factory=dict)
    plans: list[BenchPlan] = field(default_factory=list)

    def carry_out(self, plan: BenchPlan, **_):
        self.plans.append(plan)
        if plan.scenario in self.errors:
            raise self.errors[plan.scenario]
        self.now_s += plan.budget_s + self.overhead_s + self.slow.get(plan.scenario, 0.0)
        return record(id=f"run-{plan.scenario}", claims=plan.claims)

    def sweep(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Sweep:
        @contextmanager
        def show(label: str, later_s: float):
            assert later_s >= 0
            yield lambda progress: None

        monkeypatch.setattr(sweep_module, "carry_out", self.carry_out)
        return sweep_claims(
            plan_runs(CLAIMS),
            CHOICES,
            device="cpu",
            fit="narrow",
            seconds=seconds,
            precision=0.01,
            thorough=False,
            store=None,
            show=show,
            now=lambda: self.now_s,
        )


@pytest.mark.parametrize("overhead_s", [1.0, 5.0, 20.0])
def test_all_runs_end_by_the_deadline_whatever_the_overhead(monkeypatch, overhead_s: float) -> None:
    world = World(overhead_s=overhead_s)
    done = world.sweep(monkeypatch, seconds=120)
    assert len(done.records) == 3
    assert world.now_s <= 1120 + overhead_s
    assert all(plan.kill_after_s <= 120 + GRACE_S for plan in world.plans)
    assert done.exit_code == 0


def test_each_run_speaks_to_its_claims_and_has_the_noise_floor(monkeypatch) -> None:
    world = World()
    done = world.sweep(monkeypatch, seconds=120)
    assert [plan.claims for plan in world.plans] == [(one,) for one in CLAIMS]
    assert all([arm.role for arm in plan.arms][-1] == "a/a" for plan in world.plans)
    assert [row.run for row in done.rows(CLAIMS)] == [f"run-{name}" for name in SCENARIOS]


def test_one_slow_run_leaves_the_others_their_turn(monkeypatch) -> None:
    world = World(slow={SCENARIOS[0]: 60.0})
    done = world.sweep(monkeypatch, seconds=120)
    assert [plan.scenario for plan in world.plans] == list(SCENARIOS)
    assert min(plan.budget_s for plan in world.plans) >= MIN_BUDGET_S
    assert len(done.records) == 3


def test_without_time_the_rows_say_so_and_nothing_runs(monkeypatch) -> None:
    world = World()
    done = world.sweep(monkeypatch, seconds=MIN_BUDGET_S)
    assert world.plans == []
    assert {row.needs for row in done.rows(CLAIMS)} == {
        "Not measured: no time was left; give more --seconds, or name it with --only."
    }
    table = reproduce_table(done.rows(CLAIMS))
    assert {row[table.columns.index("Tokens/s")] for row in table.rows} == {"-"}


def test_a_run_that_cannot_take_place_leaves_its_reason_and_the_others_go_on(monkeypatch) -> None:
    world = World(errors={SCENARIOS[1]: UsageError("it needs a GPU.")})
    done = world.sweep(monkeypatch, seconds=120)
    assert [row.needs for row in done.rows(CLAIMS)] == [None, "Not measured: it needs a GPU.", None]


def test_one_ctrl_c_ends_the_sweep_and_keeps_the_runs_so_far(monkeypatch) -> None:
    world = World()
    first = world.carry_out

    def interrupted(plan: BenchPlan, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return first(plan, **options)

    world.carry_out = interrupted  # type: ignore[method-assign]
    done = world.sweep(monkeypatch, seconds=120)
    assert len(done.records) == 1
    assert done.stop_code == 130
    assert done.exit_code == 130
    assert [row.needs for row in done.rows(CLAIMS)][1:] == [
        "Not measured: the sweep was interrupted before its turn."
    ] * 2


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], 2),
        ([record()], 0),
        ([record(parity=(parity("a", passed=False),))], 1),
        ([record(status="failed", reason="r"), record(parity=(parity("a", passed=False),))], 3),
    ],
)
def test_exit_codes(records, code: int) -> None:
    assert Sweep(records=records).exit_code == code
