"""One run in this process, on virtual time: what is run, in what order, and what is told."""

from __future__ import annotations

import gc
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from harness.bench.child_events import (
    Ended,
    Event,
    MemoryMeasured,
    Noted,
    ParityChecked,
    Stage,
    SyncsCounted,
    Timed,
    decode,
    encode,
)
from harness.bench.plan import with_a_a
from harness.bench.session import measure
from harness.errors import UsageError
from harness.record.records import Arm
from harness.stats import compare_all
from tests.toys import bench_toys
from tests.toys.bench_toys import BASELINE, FAST, arm, toy_plan

if TYPE_CHECKING:
    from harness.bench.plan import BenchPlan


def carry_out(plan: BenchPlan, *, stop_after: int | None = None) -> list[Event]:
    """Every event of a run; asked to stop once so many stages were announced."""
    events: list[Event] = []

    def should_stop() -> bool:
        return stop_after is not None and len(of(events, Timed)) >= stop_after

    measure(plan, events.append, should_stop)
    return events


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def timed_samples(events: list[Event]) -> list[Any]:
    return [sample for event in of(events, Timed) for sample in event.samples]


def test_a_known_difference_of_two_is_found() -> None:
    events = carry_out(toy_plan(*with_a_a((BASELINE, FAST))))
    found = {
        (c.arm, c.phase): c
        for c in compare_all(
            timed_samples(events), with_a_a((BASELINE, FAST)), source="measured", margin=0.02
        )
    }
    for phase in ("forward", "backward", "optimizer", "batch"):
        assert found["fast", phase].verdict == "faster"
        assert found["fast", phase].speedup == pytest.approx(1.0, abs=0.03)
        assert found["a/a", phase].low <= 0 <= found["a/a", phase].high
    assert found["a/a", "batch"].verdict == "same"


def test_the_batch_is_a_measurement_of_its_own_marks() -> None:
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for sample in timed_samples(carry_out(toy_plan(max_blocks=8))):
        by_step[sample.order][sample.phase] = sample.duration_ms
    for times in by_step.values():
        parts = times["forward"] + times["backward"] + times["optimizer"]
        assert times["batch"] == pytest.approx(parts)


def test_every_block_runs_every_arm_once_on_one_batch_in_changing_order() -> None:
    plan = toy_plan(BASELINE, FAST, arm("rounded"), spec={"allowed": 0.01})
    samples = [s for s in timed_samples(carry_out(plan)) if s.phase == "batch"]
    blocks: dict[int, list[str]] = defaultdict(list)
    for sample in samples:
        if not sample.warmup:
            blocks[sample.block].append(sample.arm)
    assert len(blocks) == 12
    assert all(sorted(arms) == ["baseline", "fast", "rounded"] for arms in blocks.values())
    assert Counter(arms[0] for arms in blocks.values()) == Counter(
        {"baseline": 4, "fast": 4, "rounded": 4}
    )
    warmups = [sample for sample in samples if sample.warmup]
    assert Counter(sample.arm for sample in warmups) == Counter(
        {"baseline": 2, "fast": 1, "rounded": 1}
    )
    assert [sample.order for sample in samples] == list(range(len(samples)))


def test_arms_of_a_block_see_the_same_batch_and_the_same_dropout() -> None:
    # With learning rate 0 the loss depends on batch and dropout alone.
    plan = toy_plan(measure_memory=False, measure_parity=False, spec={"learning_rate": 0.0})
    events = carry_out(plan)
    log = bench_toys.BUILT[-1].log[2 * plan.warmup_steps :]
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert len(pairs) == 12
    for (first_variant, first_batch, first), (second_variant, second_batch, second) in pairs:
        assert {first_variant, second_variant} == {"slow", "fast"}
        assert first_batch == second_batch
        assert first == second
    assert len({batch for (_, batch, _), _ in pairs}) == 3
    assert len({loss for (_, _, loss), _ in pairs}) == 12
    assert of(events, Ended)[0].cause == "max-blocks"


def test_it_stops_once_every_interval_is_narrow_enough() -> None:
    plan = toy_plan(spec={"noise": 0.001}, max_blocks=1000, precision=0.01)
    events = carry_out(plan)
    assert of(events, Ended)[0].cause == "precision"
    assert len({s.block for s in timed_samples(events)} - {-1}) == plan.min_blocks


def test_a_run_that_ends_before_its_interval_is_narrow_says_so() -> None:
    events = carry_out(toy_plan(spec={"noise": 0.5}, precision=0.0001))
    assert of(events, Ended)[0].cause == "max-blocks"
    assert "before every interval was as narrow" in of(events, Noted)[0].text


def test_the_budget_ends_it_on_the_callers_clock() -> None:
    events: list[Event] = []
    # Every look at the clock finds a second gone.
    ticks = iter(range(10_000))
    measure(
        toy_plan(budget_s=60.0, precision=1e-6, max_blocks=1000),
        events.append,
        lambda: False,
        lambda: float(next(ticks)),
    )
    assert of(events, Ended)[0].cause == "budget"
    assert next(ticks) < 62


def test_memory_is_left_out_with_a_note_where_the_run_took_twice_its_budget() -> None:
    events: list[Event] = []
    ticks = iter(range(10_000))
    plan = toy_plan(budget_s=1.0)
    measure(plan, events.append, lambda: False, lambda: float(next(ticks)))
    assert len({sample.block for sample in timed_samples(events) if not sample.warmup}) == 1
    assert not of(events, MemoryMeasured)
    assert "before memory and syncs of baseline, fast" in of(events, Noted)[-1].text


def test_a_stop_between_steps_keeps_what_was_measured() -> None:
    events = carry_out(toy_plan(), stop_after=7)
    assert of(events, Ended)[0].cause == "stopped"
    assert len(of(events, Timed)) == 7
    assert not of(events, MemoryMeasured)


def test_an_arm_that_fails_parity_is_not_timed() -> None:
    events = carry_out(toy_plan(BASELINE, FAST, arm("nan")))
    timed = {sample.arm for sample in timed_samples(events) if not sample.warmup}
    assert timed == {"baseline", "fast"}
    assert "Arm 'nan' failed parity" in of(events, Noted)[0].text


def test_without_an_arm_left_nothing_is_timed() -> None:
    events = carry_out(toy_plan(BASELINE, arm("nan")))
    assert of(events, Ended)[0].cause == "no-arm-left"
    assert all(sample.warmup for sample in timed_samples(events))


def test_memory_is_measured_for_every_arm_and_phase_after_the_timed_blocks() -> None:
    events = carry_out(toy_plan())
    peaks = [peak for event in of(events, MemoryMeasured) for peak in event.memory]
    assert Counter(peak.arm for peak in peaks) == Counter({"baseline": 4, "fast": 4})
    assert all(peak.peak_bytes > 0 for peak in peaks)
    stages = [event.name for event in of(events, Stage)]
    assert stages.index("memory") > len(stages) - 1 - stages[::-1].index("timing")


def test_the_memory_pass_leaves_weights_and_optimizer_as_they_were() -> None:
    def final_state(measure_memory: bool) -> dict[str, torch.Tensor]:
        carry_out(toy_plan(measure_memory=measure_memory, spec={"adamw": True}))
        workload = bench_toys.BUILT[-1]
        moments = {
            f"{number}.{key}": value
            for number, entries in workload.optimizer.state_dict()["state"].items()
            for key, value in entries.items()
        }
        return {**workload.model.state_dict(), **moments}

    without, with_pass = final_state(False), final_state(True)
    assert without.keys() == with_pass.keys()
    assert len(without) > 10
    assert all(torch.equal(without[name], with_pass[name]) for name in without)


def test_a_probe_given_by_name_counts_the_syncs_of_every_arm() -> None:
    events = carry_out(toy_plan(sync_probe="tests.toys.bench_toys:sync_probe"))
    counts = {s.arm: s.count for event in of(events, SyncsCounted) for s in event.syncs}
    assert counts == {"baseline": 8, "fast": 4}


def test_the_model_is_left_without_any_optimization_selected() -> None:
    carry_out(toy_plan(BASELINE, FAST))
    assert bench_toys.BUILT[-1].model.variant == "slow"


def test_garbage_collection_is_on_again_afterwards() -> None:
    carry_out(toy_plan())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"arms": (BASELINE, arm("quick"))}, "toy-fix has no variant 'quick'; it has slow, fast"),
        (
            {"arms": (BASELINE, Arm(name="x", variants={"turbo": "on"}))},
            "no optimization 'turbo'; it has toy-fix",
        ),
        (
            {"arms": (BASELINE, arm("impossible"))},
            "'impossible' cannot run toy-fix=impossible: it needs a GPU of the year 3000",
        ),
        ({"factory": "tests.toys.bench_toys"}, "not of the form"),
        ({"factory": "tests.toys.nowhere:build"}, "cannot be imported"),
        ({"factory": "tests.toys.bench_toys:nothing"}, "has no 'nothing'"),
        ({"backend": None, "device": "emulated:toy"}, "knows no GPU named 'toy'"),
        ({"backend": None, "device": "cpu:1"}, "one CPU device"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_that_names_it(
    changes: dict[str, Any], part: str
) -> None:
    arms = changes.pop("arms", (BASELINE, FAST))
    with pytest.raises(UsageError, match=part.replace("(", r"\(")):
        carry_out(toy_plan(*arms, **changes))


def test_every_event_survives_the_pipe() -> None:
    plan = toy_plan(sync_probe="tests.toys.bench_toys:sync_probe")
    events = carry_out(plan)
    assert [decode(encode(event)) for event in events] == events
    assert {type(event) for event in events} >= {Timed, ParityChecked, MemoryMeasured, Ended}


@pytest.fixture(autouse=True)
def keep_random_state() -> Any:
    """The session seeds every generator of its process; here that process is pytest's."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
