"""What counts as the same computation, and what is left behind by finding out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.bench.arm_switch import baseline_variant, parity_tolerance, resolve_arms
from harness.bench.parity import (
    Difference,
    ParityCheck,
    compare_tensors,
    model_dtype,
    repeat_tolerance,
)
from harness.bench.training_state import TrainingState, seed_everything
from harness.record.records import Arm, Parity
from tests.toys.bench_toys import ToyAttachment, ToyFix, ToyWorkload

EXACT = (0.0, "the same order")


@pytest.fixture
def workload() -> ToyWorkload:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ToyWorkload({"adamw": True})


def check(
    workload: ToyWorkload, variant: str, tolerance: tuple[float, str] = EXACT
) -> tuple[Parity, Parity]:
    with torch.random.fork_rng():
        attachment = ToyAttachment(workload.model)
        return ParityCheck(workload, attachment.select, "slow", seed=3).check(variant, tolerance)


def test_the_same_computation_is_equal_to_the_last_bit_dropout_included(
    workload: ToyWorkload,
) -> None:
    for result in check(workload, "fast"):
        assert result.passed
        assert result.bitwise
        assert result.max_abs_difference == 0.0
        assert result.worst is None
    # One run of each, on one batch, with one dropout mask.
    assert [variant for variant, _, _ in workload.log] == ["slow", "fast"]
    assert len({loss for _, _, loss in workload.log}) == 1
    assert {batch for _, batch, _ in workload.log} == {0}


def test_another_dropout_is_another_computation(workload: ToyWorkload) -> None:
    loss, gradients = check(workload, "own-dropout", (0.01, "rounding"))
    assert not loss.passed
    assert not gradients.passed


def test_a_small_difference_passes_only_within_a_stated_tolerance(workload: ToyWorkload) -> None:
    loss, gradients = check(workload, "rounded", (1e-3, "one more rounding"))
    for result in (loss, gradients):
        assert result.passed
        assert not result.bitwise
        assert result.reason == "one more rounding"
        assert result.tolerance == 1e-3
        assert result.max_rel_difference is not None
        assert 1e-6 < result.max_rel_difference < 1e-4
    assert gradients.worst in {"first.weight", "first.bias", "last.weight", "last.bias"}
    assert gradients.num_compared == 6

    for result in check(workload, "rounded"):
        assert not result.passed
        assert "differs by more than allowed (the same order)" in result.reason


def test_a_missing_gradient_fails_and_is_named(workload: ToyWorkload) -> None:
    loss, gradients = check(workload, "detached", (1.0, "anything goes"))
    assert loss.passed
    assert not gradients.passed
    assert gradients.reason == "gradient of first.bias is missing (and 1 more)"
    assert gradients.max_rel_difference is None


def test_an_extra_gradient_fails_and_is_named(workload: ToyWorkload) -> None:
    with torch.no_grad():
        workload.model.unused.bias.zero_()
    _, gradients = check(workload, "extra", (1.0, "anything goes"))
    assert not gradients.passed
    assert "gradient of unused.bias is missing in the baseline" in gradients.reason


def test_nan_fails_whatever_the_tolerance(workload: ToyWorkload) -> None:
    loss, gradients = check(workload, "nan", (math.inf, "anything goes"))
    assert not loss.passed
    assert loss.reason == "loss is NaN"
    assert not gradients.passed


def test_two_nans_are_no_parity(workload: ToyWorkload) -> None:
    with torch.no_grad():
        workload.model.first.weight[0, 0] = math.nan
    loss, gradients = check(workload, "fast")
    assert not loss.passed
    assert not gradients.passed


def test_a_model_without_gradients_shows_nothing(workload: ToyWorkload) -> None:
    workload.backward = lambda: None  # type: ignore[method-assign]
    _, gradients = check(workload, "fast")
    assert not gradients.passed
    assert gradients.reason == "no parameter has a gradient in the baseline"


class DriftingWorkload(ToyWorkload):
    """Adds in no fixed order: each forward differs by a rounding step or more."""

    step = 0.0

    def forward(self) -> torch.Tensor:
        with torch.no_grad():
            self.batches *= 1 + self.step
        return super().forward()


def test_an_exact_arm_need_be_no_steadier_than_a_baseline_that_does_not_repeat() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drifting = DriftingWorkload({})
    drifting.step = 1e-7
    loss, gradients = check(drifting, "fast")
    assert loss.passed
    assert gradients.passed
    assert not gradients.bitwise
    assert gradients.tolerance == repeat_tolerance(torch.float32)
    assert "does not repeat" in gradients.reason


def test_a_baseline_that_is_far_from_repeating_is_no_excuse() -> None:
    drifting = DriftingWorkload({})
    drifting.step = 0.1
    loss, _ = check(drifting, "fast")
    assert not loss.passed


def test_weights_buffers_gradients_and_optimizer_are_as_before(workload: ToyWorkload) -> None:
    workload.forward()
    workload.backward()
    workload.optimizer_step()
    before = {name: value.clone() for name, value in workload.model.state_dict().items()}
    moments = _optimizer_tensors(workload)
    check(workload, "detached")
    after = workload.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in workload.model.parameters())
    assert _all_equal(moments, _optimizer_tensors(workload))


def test_a_gradient_that_is_nothing_but_rounding_is_not_measured_by_its_own_size() -> None:
    # As the bias of a key projection: zero by algebra, so what is left is rounding.
    class RoundingBias(ToyWorkload):
        def backward(self) -> None:
            super().backward()
            sign = 1 if self.model.variant == "slow" else -1
            self.model.unused.bias.grad = torch.full((1,), sign * 1e-12)

    _, gradients = check(RoundingBias({}), "fast", (1e-3, "another order"))
    assert gradients.passed
    assert gradients.worst == "unused.bias"


def _optimizer_tensors(workload: ToyWorkload) -> list[torch.Tensor]:
    state = workload.optimizer.state_dict()["state"]
    return [value.clone() for entries in state.values() for value in entries.values()]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.integers(0, 19))
def test_one_changed_number_is_found_wherever_it_is(values: list[float], index: int) -> None:
    reference = torch.tensor(values)
    index %= len(values)
    changed = reference.clone()
    changed[index] += 10.0
    difference = compare_tensors(changed, reference)
    assert not difference.bitwise
    assert difference.max_abs == float((changed - reference).abs().max())
    assert difference.max_reference == float(reference.abs().max())
    assert compare_tensors(reference.clone(), reference).bitwise


def test_minus_zero_is_not_the_last_bit_but_no_difference() -> None:
    difference = compare_tensors(torch.tensor([-0.0]), torch.tensor([0.0]))
    assert not difference.bitwise
    assert difference.max_abs == 0.0


@pytest.mark.parametrize(
    ("value", "reference", "problem"),
    [
        (None, torch.ones(1), "is missing"),
        (torch.ones(1), None, "is missing in the baseline"),
        (torch.ones(2), torch.ones(1, 2), "has shape (2,) against (1, 2)"),
        (torch.tensor([math.inf]), torch.ones(1), "is infinite"),
        (torch.ones(1), torch.tensor([math.nan]), "is NaN in the baseline"),
    ],
)
def test_what_cannot_be_compared_is_a_problem_and_not_a_number(
    value: torch.Tensor | None, reference: torch.Tensor | None, problem: str
) -> None:
    difference = compare_tensors(value, reference)
    assert difference.problem == problem
    assert difference.bitwise is False


def test_nothing_on_both_sides_is_no_difference() -> None:
    assert compare_tensors(None, None) == Difference()


def test_a_difference_below_single_precision_is_seen_in_double_precision() -> None:
    reference = torch.ones(2, dtype=torch.float64)
    difference = compare_tensors(reference + 2**-40, reference)
    assert (difference.max_abs, difference.max_reference) == (2**-40, 1.0)


def test_a_result_names_the_arm_its_baseline_and_what_was_compared(workload: ToyWorkload) -> None:
    loss, gradients = check(workload, "nan", (math.inf, "anything goes"))
    assert (loss.arm, loss.baseline, loss.quantity) == ("nan", "slow", "loss")
    assert (gradients.arm, gradients.baseline, gradients.quantity) == ("nan", "slow", "gradients")
    # Where there is a problem there is no figure, large or small.
    assert loss.max_abs_difference is None
    assert loss.max_rel_difference is None
    assert loss.worst is None


def test_the_baseline_is_kept_apart_from_the_memory_it_was_computed_in(
    workload: ToyWorkload,
) -> None:
    losses: list[torch.Tensor] = []
    forward = workload.forward

    def reusing() -> torch.Tensor:
        """As a workload does that keeps its loss in one buffer, and gradients in place."""
        loss = forward()
        losses.append(loss.detach())
        for earlier in losses[:-1]:
            earlier.fill_(7.0)
        return loss

    workload.forward = reusing  # type: ignore[method-assign]
    attachment = ToyAttachment(workload.model)
    parity = ParityCheck(workload, attachment.select, "slow", seed=3)
    for parameter in workload.model.parameters():
        parameter.grad = None
    loss, gradients = parity.check("fast", EXACT)
    assert loss.passed
    assert gradients.passed


def test_a_difference_where_the_baseline_is_zero_has_no_relative_size(
    workload: ToyWorkload,
) -> None:
    with torch.no_grad():
        for parameter in workload.model.parameters():
            parameter.zero_()
    attachment = ToyAttachment(workload.model)
    forward = workload.forward
    runs = itertools.count()
    workload.forward = lambda: forward() * 0 + next(runs)  # type: ignore[method-assign]
    loss, _ = ParityCheck(workload, attachment.select, "slow", seed=3).check(
        "fast", (math.inf, "anything goes")
    )
    assert not loss.passed
    assert loss.reason == "loss is not zero as in the baseline"


def test_the_same_value_of_another_dtype_is_another_result() -> None:
    ones = torch.ones(3)
    assert compare_tensors(ones, ones.clone()).bitwise
    assert not compare_tensors(ones, torch.ones(3, dtype=torch.float64)).bitwise


def test_a_model_without_floating_parameters_rounds_as_single_precision() -> None:
    assert model_dtype(torch.nn.Module()) == torch.float32


def test_how_far_a_pass_may_be_from_its_repetition() -> None:
    assert repeat_tolerance(torch.float64) == pytest.approx(256 * 2**-52)
    assert repeat_tolerance(torch.float32) == pytest.approx(256 * 2**-23)
    assert repeat_tolerance(torch.bfloat16) == 0.05


def test_a_wider_dtype_with_the_same_values_is_not_the_same_bits() -> None:
    difference = compare_tensors(torch.ones(3), torch.ones(3, dtype=torch.bfloat16))
    assert not difference.bitwise
    assert difference.max_abs == 0.0


def test_large_tensors_are_compared_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.bench.parity._SLICE_NUMEL", 7)
    reference = torch.arange(100.0).reshape(10, 10).t()
    changed = reference.clone()
    changed[9, 3] += 0.5
    difference = compare_tensors(changed, reference)
    assert difference.max_abs == 0.5
    assert difference.max_reference == 99.0


def test_the_coarsest_dtype_of_a_model_sets_its_rounding() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).bfloat16()])
    assert model_dtype(model) == torch.bfloat16


def test_the_tolerance_of_several_optimizations_is_the_largest_with_its_reasons() -> None:
    loose, tight = ToyFix(allowed=0.1), ToyFix(allowed=0.001, name="other")
    optimizations = {"loose": loose, "tight": tight}
    baseline = {"loose": "slow", "tight": "slow"}

    def tolerance(**arm: str) -> tuple[float, str]:
        return parity_tolerance(baseline | arm, baseline, optimizations, torch.float32)

    assert tolerance()[0] == 0.0
    assert tolerance(loose="fast")[0] == 0.0
    assert tolerance(tight="rounded") == (0.001, "one more rounding")
    assert tolerance(loose="rounded", tight="rounded") == (0.1, "one more rounding")
    # A baseline arm that is itself no exact variant widens what the others may do.
    back = parity_tolerance({"loose": "slow"}, {"loose": "rounded"}, optimizations, torch.float32)
    assert back[0] == 0.1


def test_an_arm_takes_the_baseline_variant_of_what_it_does_not_name() -> None:
    arms = (
        Arm(name="a", variants={}, role="baseline"),
        Arm(name="b", variants={"toy-fix": "fast"}),
    )
    choices = resolve_arms(arms, {"toy-fix": ToyFix(), "never-named": ToyFix()})
    assert choices == {"a": {"toy-fix": "slow"}, "b": {"toy-fix": "fast"}}
    assert baseline_variant(ToyFix()) == "slow"


def test_training_state_comes_back_exactly_also_what_was_not_there(
    workload: ToyWorkload,
) -> None:
    untouched = TrainingState(workload)
    before = {name: value.clone() for name, value in workload.model.state_dict().items()}
    with torch.random.fork_rng():
        seed_everything(1)
        _step(workload)
        after_one = {n: v.clone() for n, v in workload.model.state_dict().items()}
        moments = _optimizer_tensors(workload)
        trained = TrainingState(workload)
        _step(workload)
        trained.restore()
    now = workload.model.state_dict()
    assert all(torch.equal(after_one[name], now[name]) for name in now)
    assert _all_equal(moments, _optimizer_tensors(workload))
    assert not all(torch.equal(before[name], now[name]) for name in now)
    untouched.restore()
    now = workload.model.state_dict()
    assert all(torch.equal(before[name], now[name]) for name in now)
    assert not workload.optimizer.state


def test_a_frozen_base_is_not_copied() -> None:
    workload = ToyWorkload({})
    workload.model.first.requires_grad_(False)
    state = TrainingState(workload)
    with torch.no_grad():
        workload.model.first.bias.fill_(7.0)
        workload.model.last.bias.fill_(7.0)
    state.restore()
    assert float(workload.model.first.bias.detach()[0]) == 7.0
    assert float(workload.model.last.bias.detach()[0]) != 7.0


def _all_equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _step(workload: ToyWorkload) -> None:
    workload.forward()
    workload.backward()
    workload.optimizer_step()
