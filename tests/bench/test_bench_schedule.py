"""Order, pace and the rule that ends the timed blocks."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.plan import with_a_a
from harness.bench.schedule import Pace, StopRule, block_orders
from harness.errors import UsageError
from harness.record.records import Arm
from tests.toys.bench_toys import BASELINE, FAST, arm, toy_plan


def _round(num_arms: int, seed: int) -> list[tuple[str, ...]]:
    arms = [f"arm{i}" for i in range(num_arms)]
    return list(islice(block_orders(arms, seed), num_arms * (1 + num_arms % 2)))


@given(st.integers(2, 9), st.integers(0, 1000))
def test_every_arm_is_equally_often_in_every_place_and_after_every_other(
    num_arms: int, seed: int
) -> None:
    orders = _round(num_arms, seed)
    places = Counter((place, name) for order in orders for place, name in enumerate(order))
    followers = Counter(pair for order in orders for pair in pairwise(order))
    assert len(places) == num_arms**2
    assert len(followers) == num_arms * (num_arms - 1)
    assert len(set(places.values())) == 1
    assert len(set(followers.values())) == 1


def test_the_order_is_random_and_repeats_with_its_seed() -> None:
    first = list(islice(block_orders("abcd", 1), 40))
    assert first == list(islice(block_orders("abcd", 1), 40))
    assert first != list(islice(block_orders("abcd", 2), 40))
    assert len(set(first)) > 8


def _rule(**changes: float) -> StopRule:
    settings = {
        "precision": 0.01,
        "deadline_s": 100.0,
        "reserve_s": 0.0,
        "min_blocks": 8,
        "max_blocks": 50,
    }
    return StopRule(**(settings | changes))  # type: ignore[arg-type]


def test_precision_stops_only_after_the_fewest_blocks() -> None:
    rule = _rule()
    assert rule.decide(num_blocks=7, now_s=0, block_s=1, precise=True) is None
    assert rule.decide(num_blocks=8, now_s=0, block_s=1, precise=True) == "precision"
    assert rule.decide(num_blocks=8, now_s=0, block_s=1, precise=False) is None


def test_the_budget_stops_before_the_block_that_would_overrun_it() -> None:
    rule = _rule()
    assert rule.decide(num_blocks=3, now_s=89.9, block_s=10, precise=False) is None
    assert rule.decide(num_blocks=3, now_s=90.1, block_s=10, precise=False) == "budget"


def test_time_is_set_aside_for_other_passes_only_once_there_are_enough_blocks() -> None:
    rule = _rule(reserve_s=20.0)
    assert rule.decide(num_blocks=7, now_s=85, block_s=10, precise=False) is None
    assert rule.decide(num_blocks=8, now_s=85, block_s=10, precise=False) == "budget"


def test_one_block_runs_whatever_the_budget() -> None:
    assert _rule().decide(num_blocks=0, now_s=500, block_s=10, precise=False) is None


def test_never_more_than_the_largest_number_of_blocks() -> None:
    assert _rule().decide(num_blocks=50, now_s=0, block_s=0, precise=False) == "max-blocks"


def test_the_interval_is_looked_at_from_the_fewest_blocks_on_and_ever_more_rarely() -> None:
    rule = _rule(max_blocks=1000)
    looked = [block for block in range(1000) if rule.wants_interval(block)]
    assert looked[0] == 8
    assert len(looked) < 40
    gaps = [after - before for before, after in pairwise(looked)]
    assert gaps == sorted(gaps)


def test_the_pace_is_the_slowest_of_the_last_blocks() -> None:
    pace = Pace(first_guess_s=9)
    assert pace.block_s == 9
    for block_s in (5, 1, 2, 3):
        pace.add(block_s)
    assert pace.block_s == 3


def test_remaining_time_follows_the_interval_and_never_passes_the_budget() -> None:
    rule = _rule(max_blocks=1000)
    # Twice too wide after 10 blocks: 40 are needed, 30 more.
    rest = rule.remaining_s(num_blocks=10, now_s=0, block_s=2, half_width=0.02)
    assert rest == pytest.approx(60)
    assert rule.remaining_s(num_blocks=10, now_s=90, block_s=2, half_width=0.02) == 10
    assert rule.remaining_s(num_blocks=10, now_s=200, block_s=2, half_width=0.02) == 0


def test_an_a_a_arm_is_the_baseline_again_and_is_added_once() -> None:
    arms = with_a_a((BASELINE, FAST))
    assert [item.role for item in arms] == ["baseline", "arm", "a/a"]
    assert arms[-1].variants == BASELINE.variants
    assert with_a_a(arms) == arms


@pytest.mark.parametrize(
    ("arms", "part"),
    [
        ((FAST, arm("slow")), "Exactly one arm must have the role"),
        ((BASELINE,), "cannot be compared"),
        ((BASELINE, FAST, FAST), "two arms are called 'fast'"),
        (
            (BASELINE, Arm(name="again", variants={"toy-fix": "fast"}, role="a/a")),
            "must choose the baseline's variants",
        ),
    ],
)
def test_arms_that_make_no_comparison_are_refused(arms: tuple[Arm, ...], part: str) -> None:
    with pytest.raises(UsageError, match=f"(?i){part}"):
        toy_plan(*arms)


@pytest.mark.parametrize(
    "changes", [{"min_blocks": 0}, {"min_blocks": 9, "max_blocks": 8}, {"budget_s": 0.0}]
)
def test_limits_that_leave_nothing_to_measure_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        toy_plan(**changes)
