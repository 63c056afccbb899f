"""Paired statistics: exact recovery, symmetries, and an error rate that holds under stopping."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record.records import Arm, Comparison, Phase, Sample
from harness.stats import (
    MIN_BLOCKS_TO_STOP,
    attainable_confidence,
    block_speedups,
    compare,
    compare_all,
    is_precise,
    median_interval,
    minimum_detectable,
    throughput,
    verdict,
)

RANK = {"slower": 0, "same": 1, "undecided": 1, "faster": 2}


def samples_of(times: dict[str, list[list[float]]], phase: Phase = "batch") -> list[Sample]:
    """`times[arm][block]` holds that block's repeats."""
    found: list[Sample] = []
    for block in range(max(len(blocks) for blocks in times.values())):
        for arm, blocks in times.items():
            for duration_ms in blocks[block] if block < len(blocks) else []:
                found.append(
                    Sample(
                        order=len(found),
                        block=block,
                        arm=arm,
                        phase=phase,
                        duration_ms=duration_ms,
                    )
                )
    return found


def ab(samples: list[Sample], **options: float) -> Comparison:
    found = compare(samples, arm="b", baseline="a", phase="batch", source="measured", **options)
    assert found is not None
    return found


times_ms = st.floats(1e-3, 1e5)
blocks_of_times = st.lists(st.lists(times_ms, min_size=1, max_size=3), min_size=1, max_size=15)
two_arms = st.fixed_dictionaries({"a": blocks_of_times, "b": blocks_of_times}).map(samples_of)


@given(blocks_of_times, st.floats(0.1, 10))
def test_a_constant_factor_is_recovered(blocks: list[list[float]], factor: float) -> None:
    slower = [[t * factor for t in block] for block in blocks]
    found = ab(samples_of({"a": slower, "b": blocks}))
    assert found.speedup == pytest.approx(factor - 1, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((factor - 1, factor - 1), abs=1e-9)


@given(two_arms)
def test_swapping_arms_gives_the_reciprocal(samples: list[Sample]) -> None:
    found = ab(samples)
    swapped = compare(samples, arm="a", baseline="b", phase="batch", source="measured")
    assert swapped is not None
    assert (1 + found.speedup) * (1 + swapped.speedup) == pytest.approx(1)
    assert (1 + found.low) * (1 + swapped.high) == pytest.approx(1)
    assert (1 + found.high) * (1 + swapped.low) == pytest.approx(1)
    slack = 1e-9 * (1 + found.high)
    assert found.low - slack <= found.speedup <= found.high + slack


@given(two_arms, st.floats(1e-3, 1e3))
def test_the_unit_of_time_changes_nothing(samples: list[Sample], scale: float) -> None:
    scaled = [
        Sample(order=s.order, block=s.block, arm=s.arm, phase=s.phase,
               duration_ms=s.duration_ms * scale)
        for s in samples
    ]  # fmt: skip
    before, after = ab(samples), ab(scaled)
    assert after.speedup == pytest.approx(before.speedup, rel=1e-6, abs=1e-9)
    assert after.low == pytest.approx(before.low, rel=1e-6, abs=1e-9)
    assert after.high == pytest.approx(before.high, rel=1e-6, abs=1e-9)


@given(two_arms, st.randoms(use_true_random=False))
def test_order_inside_and_between_blocks_changes_nothing(samples: list[Sample], random) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert ab(shuffled) == ab(samples)


def test_drift_shared_by_a_block_cancels() -> None:
    drift = [1.5**block for block in range(12)]
    found = ab(samples_of({"a": [[10 * d] for d in drift], "b": [[8 * d] for d in drift]}))
    assert found.speedup == pytest.approx(0.25)
    assert found.verdict == "faster"


def test_warmups_other_phases_and_unusable_times_are_left_out() -> None:
    good = samples_of({"a": [[2.0]] * 8, "b": [[1.0]] * 8})
    noise = [
        Sample(order=90, block=0, arm="b", phase="batch", duration_ms=99.0, warmup=True),
        Sample(order=91, block=0, arm="b", phase="forward", duration_ms=99.0),
        Sample(order=92, block=9, arm="b", phase="batch", duration_ms=0.0),
        Sample(order=93, block=9, arm="a", phase="batch", duration_ms=1.0),
    ]
    found = ab([*good, *noise])
    assert (found.speedup, found.num_blocks) == (pytest.approx(1.0), 8)


def test_nothing_to_pair_is_none() -> None:
    assert compare([], arm="b", baseline="a", phase="batch", source="measured") is None
    only_one = samples_of({"a": [[1.0]]})
    assert compare(only_one, arm="b", baseline="a", phase="batch", source="measured") is None


def test_five_blocks_stay_undecided_and_say_what_their_range_is_worth() -> None:
    found = ab(samples_of({"a": [[2.0], [2.1], [2.2], [2.1], [2.0]], "b": [[1.0]] * 5}))
    assert found.verdict == "undecided"
    assert found.confidence == pytest.approx(0.9375)
    assert (found.low, found.high) == pytest.approx((1.0, 1.2))
    assert found.minimum_detectable is None
    six = ab(samples_of({"a": [[2.0]] * 6, "b": [[1.0]] * 6}))
    assert (six.verdict, six.confidence) == ("faster", 0.95)


def test_a_modelled_clock_needs_no_repeats() -> None:
    one_block = samples_of({"a": [[2.0]], "b": [[1.0]]})
    found = compare(one_block, arm="b", baseline="a", phase="batch", source="modelled")
    assert found is not None
    assert (found.verdict, found.confidence, found.source) == ("faster", 0.95, "modelled")
    assert found.minimum_detectable is None
    assert is_precise([found], 0.01)


def test_compare_all_covers_every_other_arm_and_timed_phase() -> None:
    times = {"base": [[2.0]] * 6, "again": [[2.0]] * 6, "fix": [[1.0]] * 6}
    samples = samples_of(times) + samples_of(times, "forward")
    arms = [
        Arm(name="fix", variants={}),
        Arm(name="base", variants={}, role="baseline"),
        Arm(name="again", variants={}, role="a/a"),
        Arm(name="never timed", variants={}),
    ]
    found = compare_all(samples, arms, source="measured")
    assert [(c.arm, c.phase, c.verdict) for c in found] == [
        ("fix", "forward", "faster"),
        ("fix", "batch", "faster"),
        ("again", "forward", "same"),
        ("again", "batch", "same"),
    ]
    assert {c.baseline for c in found} == {"base"}
    single = compare(samples, arm="fix", baseline="base", phase="batch", source="measured")
    assert found[1] == single
    assert compare_all(samples, arms[:1], source="measured") == ()


def test_throughput_is_from_the_median_batch() -> None:
    samples = samples_of({"a": [[100.0], [200.0], [10_000.0]]})
    warm = Sample(order=9, block=-1, arm="a", phase="batch", duration_ms=1.0, warmup=True)
    arms = [Arm(name="a", variants={}), Arm(name="absent", variants={})]
    (found,) = throughput([*samples, warm], arms, num_tokens=512, source="measured")
    assert (found.arm, found.steps_per_s, found.tokens_per_s) == ("a", 5.0, 2560.0)


# The verdict.


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.05, 0.09, "faster"),
        (0.002, 0.05, "faster"),
        (-0.09, -0.05, "slower"),
        (-0.05, -0.002, "slower"),
        (-0.01, 0.01, "same"),
        (0.002, 0.008, "same"),
        (-0.008, -0.002, "same"),
        (0.0, 0.0, "same"),
        (-0.005, 0.03, "undecided"),
        (0.0, 0.03, "undecided"),
        (-0.5, 0.5, "undecided"),
    ],
)
def test_verdict_of_known_intervals(low: float, high: float, expected: str) -> None:
    assert verdict(low, high, 0.01) == expected


bound = st.floats(-0.9, 10)


@given(bound, bound, st.floats(0, 0.5), st.floats(0, 1))
def test_verdict_is_total_and_never_falls_as_an_interval_rises(
    x: float, y: float, margin: float, shift: float
) -> None:
    low, high = min(x, y), max(x, y)
    assert RANK[verdict(low, high, margin)] <= RANK[verdict(low + shift, high + shift, margin)]


@given(bound, bound, st.floats(0, 0.5))
def test_verdict_mirrors(x: float, y: float, margin: float) -> None:
    low, high = min(x, y), max(x, y)
    mirror = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}
    assert verdict(-high, -low, margin) == mirror[verdict(low, high, margin)]


@pytest.mark.parametrize(
    ("low", "high", "margin"), [(1.0, 0.0, 0.01), (math.nan, 1.0, 0.01), (0.0, 1.0, -0.1)]
)
def test_what_is_no_interval_has_no_verdict(low: float, high: float, margin: float) -> None:
    with pytest.raises(ValueError, match="not an interval"):
        verdict(low, high, margin)


# The interval.


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.floats(0.5, 0.999))
def test_interval_holds_the_median_and_widens_with_confidence(
    values: list[float], confidence: float
) -> None:
    low, high = median_interval(values, confidence)
    wide_low, wide_high = median_interval(values, min(confidence + 0.01, 0.9999))
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) <= low <= median(values) + slack
    assert median(values) - slack <= high <= max(values)
    assert wide_low <= low + slack
    assert high - slack <= wide_high


def test_interval_agrees_with_the_binomial_distribution() -> None:
    # 1 - 2 * P(B(9, 1/2) <= 1) = 1 - 2 * 10 / 512: exactly the second smallest and largest.
    assert median_interval(range(1, 10), 1 - 20 / 512) == (2, 8)
    assert median_interval(range(1, 6), 0.95) == (1, 5)
    assert attainable_confidence(5) == 1 - 2 / 32
    assert attainable_confidence(0) == 0.0


def block_noise(kind: str, rng: np.random.Generator, runs: int, blocks: int) -> np.ndarray:
    """A/A log ratios, `[runs, blocks]`: two arms in random order over one noisy timeline."""
    steps = 2 * blocks
    noise = rng.normal(size=(runs, steps))
    if kind == "heavy":
        noise = rng.standard_t(2, size=(runs, steps))
    if kind == "drift":
        noise = noise + np.linspace(0, 3 * blocks / 10, steps)
    if kind == "autocorrelated":
        for step in range(1, steps):
            noise[:, step] = 0.95 * noise[:, step - 1] + 0.31 * noise[:, step]
    pairs = noise.reshape(runs, blocks, 2)
    swapped = rng.random((runs, blocks)) < 0.5
    return np.where(swapped, pairs[..., 0] - pairs[..., 1], pairs[..., 1] - pairs[..., 0])


NOISES = ["normal", "heavy", "drift", "autocorrelated"]


@pytest.mark.parametrize("blocks", [6, 8, 12, 20, 40])
@pytest.mark.parametrize("kind", NOISES)
def test_interval_covers_as_often_as_it_says(kind: str, blocks: int) -> None:
    runs = 3000
    ratios = block_noise(kind, np.random.default_rng(blocks), runs, blocks)
    intervals = (median_interval(row, 0.95) for row in ratios.tolist())
    covered = sum(low <= 0 <= high for low, high in intervals) / runs
    # Four standard errors of 3,000 runs, about 1.6 points.
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / runs))


def stopped_early(ratios: list[float], precision: float) -> Comparison:
    """What the bench does: look after every block, stop once the interval is narrow."""
    for num_blocks in range(1, len(ratios) + 1):
        times = {"a": [[math.exp(r)] for r in ratios[:num_blocks]], "b": [[1.0]] * num_blocks}
        found = ab(samples_of(times), margin=0.0)
        if is_precise([found], precision):
            break
    return found


@pytest.mark.parametrize("kind", NOISES)
def test_stopping_on_width_keeps_false_positives_in_bounds(kind: str) -> None:
    runs, precision = 1000, 0.01
    # Noise for which the width falls below the precision after about 20 of 30 blocks.
    ratios = 0.013 * block_noise(kind, np.random.default_rng(7), runs, 30)
    ratios *= {"normal": 1.0, "heavy": 0.7, "drift": 0.95, "autocorrelated": 4.4}[kind]
    found = [stopped_early(row, precision) for row in ratios.tolist()]
    assert sum(c.num_blocks < 30 for c in found) > runs / 10
    false_positives = sum(c.verdict in ("faster", "slower") for c in found)
    # Seeded, so it cannot flicker: 32 to 41 here, and 63 or more where the intervals pay nothing
    # for the stopping rule.
    assert false_positives <= 0.05 * runs


def test_a_run_never_stops_before_its_minimum() -> None:
    for num_blocks in range(1, 12):
        found = ab(samples_of({"a": [[2.0]] * num_blocks, "b": [[1.0]] * num_blocks}))
        assert is_precise([found], 0.01) == (num_blocks >= MIN_BLOCKS_TO_STOP)
    assert not is_precise([], 0.01)


def test_precision_is_of_the_time_ratio_at_any_speedup() -> None:
    wobble = [1.0 + 0.004 * (-1) ** block for block in range(20)]
    for factor in (1.0, 100.0):
        found = ab(samples_of({"a": [[factor * w] for w in wobble], "b": [[1.0]] * 20}))
        assert is_precise([found], 0.01)
        assert not is_precise([found], 0.003)
    loose = ab(samples_of({"a": [[1.0 + 0.1 * (b % 3)] for b in range(20)], "b": [[1.0]] * 20}))
    assert not is_precise([found, loose], 0.01)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_minimum_detectable_grows_with_noise(seed: int) -> None:
    ratios = np.random.default_rng(seed).normal(size=20)
    small, large = minimum_detectable(0.01 * ratios), minimum_detectable(0.02 * ratios)
    assert small is not None
    assert large is not None
    assert 0 < small < large


def test_an_effect_of_the_minimum_detectable_size_is_mostly_found() -> None:
    rng = np.random.default_rng(3)
    noise = 0.02 * rng.normal(size=(600, 20))
    sizes = [minimum_detectable(row) for row in noise.tolist()]
    effect = math.log1p(median(size for size in sizes if size is not None))
    intervals = (median_interval(row, 0.975) for row in (noise[::-1] + effect).tolist())
    power = sum(low > 0 for low, _ in intervals) / len(noise)
    assert 0.7 < power < 0.9


NINE = samples_of({"a": [[2.0 + 0.1 * n] for n in range(9)], "b": [[1.0] for _ in range(9)]})


def test_a_comparison_carries_the_times_and_the_margin_it_was_made_with() -> None:
    found = ab(NINE, margin=0.03)
    assert (found.baseline_median_ms, found.arm_median_ms) == (pytest.approx(2.4), 1.0)
    assert found.margin == 0.03
    assert found.num_blocks == 9


def test_only_a_measured_comparison_says_what_it_could_have_told_apart() -> None:
    log_ratios = [math.log(2.0 + 0.1 * n) for n in range(9)]
    for confidence in (0.8, 0.95):
        found = ab(NINE, confidence=confidence)
        assert found.minimum_detectable == minimum_detectable(log_ratios, confidence=confidence)
        assert found.minimum_detectable is not None
    modelled = compare(NINE, arm="b", baseline="a", phase="batch", source="modelled")
    assert modelled is not None
    assert modelled.minimum_detectable is None


def test_a_confidence_that_the_range_just_gives_is_enough() -> None:
    # Five blocks give exactly 1 - 1/16.
    five = samples_of({"a": [[2.0]] * 5, "b": [[1.0]] * 5})
    assert ab(five, confidence=1 - 1 / 16).verdict == "faster"
    assert ab(five, confidence=1 - 1 / 17).verdict == "undecided"
    # The interval is drawn at half the allowed error, for which seven blocks give 1 - 1/64.
    assert minimum_detectable([0.1] * 7, confidence=1 - 1 / 32) == pytest.approx(0)
    assert minimum_detectable([0.1] * 6, confidence=1 - 1 / 32) is None


def test_the_range_of_no_block_and_of_one_says_nothing() -> None:
    assert [attainable_confidence(n) for n in (0, 1, 2, 3)] == [0, 0, 0.5, 0.75]


def test_precision_itself_is_not_precise_enough() -> None:
    found = ab(NINE)
    width = (math.log1p(found.high) - math.log1p(found.low)) / 2
    assert is_precise([found], math.expm1(width * 1.0001))
    assert not is_precise([found], math.expm1(width * 0.9999))


def test_each_block_alone_gives_what_the_interval_is_drawn_from() -> None:
    samples = samples_of({"a": [[2.0, 4.0], [3.0], [5.0]], "b": [[1.0], [2.0]]})
    samples += samples_of({"a": [[9.0]], "b": [[1.0]]}, phase="forward")
    found = block_speedups(samples, arm="b", baseline="a", phase="batch")
    assert found == {0: pytest.approx(2.0), 1: pytest.approx(0.5)}
    assert block_speedups(samples, arm="c", baseline="a", phase="batch") == {}
    assert block_speedups(samples, arm="b", baseline="c", phase="batch") == {}


def test_a_clock_too_coarse_for_a_batch_gives_no_throughput() -> None:
    arms = [Arm(name="a", variants={}, role="baseline"), Arm(name="b", variants={})]
    samples = samples_of({"a": [[0.0], [0.5], [0.25]], "b": [[0.0]]})
    (found,) = throughput(samples, arms, num_tokens=10, source="measured")
    assert (found.arm, found.source) == ("a", "measured")
    assert found.steps_per_s == pytest.approx(1000 / 0.375)
    assert found.tokens_per_s == pytest.approx(10_000 / 0.375)
