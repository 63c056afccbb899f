"""A run of a real scenario: every arm starts from the same weights and optimizer state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gapless.arms import parse_arms
from gapless.bench_run import make_plan, variants_of
from harness.bench.child_events import Event, Stage
from harness.bench.session import measure
from harness.workload import HasOptimizer
from scenarios.build_options import BuildOptions
from scenarios.causal_lm import ModelWorkload
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    import pytest

State = dict[str, torch.Tensor]
TINY = BuildOptions(
    num_layers=2, tokens=64, documents=4, num_batches=2, num_experts=4, learning_rate=1e-2
)
ARMS = ("packed-metadata=cached", "moe-routing=argsort", "checkpoint-reload=prefetch")
OPTIMIZER_ENTRIES = {"step", "exp_avg", "exp_avg_sq"}


def state_of(workload: ModelWorkload) -> State:
    """Weights, moments and step counts, by name."""
    assert isinstance(workload, HasOptimizer)
    state = {name: value.clone() for name, value in workload.model.state_dict().items()}
    for number, entries in workload.optimizer.state_dict()["state"].items():
        state |= {f"{number}.{name}": value.clone() for name, value in entries.items()}
    return state


def same(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_every_arm_starts_parity_and_inspection_from_the_same_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: dict[tuple[str, str | None], State] = {}
    stage: list[Stage] = []
    built: list[ModelWorkload] = []
    forward = ModelWorkload.forward

    def noting(workload: ModelWorkload) -> torch.Tensor:
        key = (stage[-1].name, stage[-1].arm)
        if key not in starts:
            starts[key] = state_of(workload)
        built.append(workload)
        return forward(workload)

    def follow(event: Event) -> None:
        if isinstance(event, Stage):
            stage.append(event)

    monkeypatch.setattr(ModelWorkload, "forward", noting)
    limits: dict[str, Any] = {
        "min_blocks": 1,
        "max_blocks": 1,
        "budget_s": 600.0,
        "num_threads": 1,
        "measure_syncs": False,
    }
    plan = make_plan(get("gpt-oss-20b"), parse_arms(ARMS, variants_of()), TINY, **limits)
    measure(plan, follow, lambda: False)

    names = [arm.name for arm in plan.arms]
    for checked in ("parity", "memory"):
        begun = [starts[checked, name] for name in names]
        # A step has been taken: moments and counts exist, so leaving one out would be seen.
        assert {name.split(".")[-1] for name in begun[0]} > OPTIMIZER_ENTRIES
        assert all(same(begun[0], other) for other in begun[1:]), checked
    assert not same(starts["parity", names[0]], starts["memory", names[0]])
    # The inspection leaves what the timed steps came to.
    assert same(state_of(built[-1]), starts["memory", names[0]])
