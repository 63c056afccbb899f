"""The dispatch plan is a permutation, and its hand-written gradients are the real ones."""

from __future__ import annotations

import torch
from hypothesis import given, settings

from optimizations.moe_dispatch import per_row, plan_dispatch, to_experts, to_tokens
from tests.optimizations.tiny_experts import Case, cases


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_the_plan_groups_every_pair_once(case: Case) -> None:
    chosen = torch.tensor(case.choices)
    plan = plan_dispatch(chosen, case.num_experts)
    num_pairs = chosen.numel()
    assert plan.order.sort().values.tolist() == list(range(num_pairs))
    assert plan.inverse[plan.order].tolist() == list(range(num_pairs))
    assert plan.expert_of_row.tolist() == sorted(chosen.reshape(-1).tolist())
    assert plan.ends.dtype == torch.int32
    counts = torch.bincount(chosen.reshape(-1), minlength=case.num_experts)
    assert plan.ends.tolist() == counts.cumsum(0).tolist()
    start = 0
    for expert, end in enumerate(plan.ends.tolist()):
        tokens = (plan.order[start:end] // case.top_k).tolist()
        assert tokens == torch.where(chosen == expert)[0].tolist()
        start = end


def test_there_and_back_is_the_weighted_sum() -> None:
    chosen = torch.tensor([[2, 0], [0, 1], [2, 1]])
    plan = plan_dispatch(chosen, 4)
    states = torch.randn(3, 5)
    weights = torch.rand(3, 2)
    rows = to_experts(states, plan, 2)
    assert torch.equal(rows, states[plan.order // 2])
    back = to_tokens(rows, plan, weights)
    torch.testing.assert_close(back, states * weights.sum(1, keepdim=True))


def test_gradients_by_finite_differences() -> None:
    plan = plan_dispatch(torch.tensor([[2, 0], [0, 1], [2, 1], [3, 2]]), 5)
    states = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: to_experts(s, plan, 2), (states,))
    assert torch.autograd.gradcheck(lambda r, w: to_tokens(r, plan, w), (rows, weights))
    bias = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: per_row(b, plan.expert_of_row), (bias,))


def test_a_bias_gradient_over_many_rows_keeps_its_sum_in_low_precision() -> None:
    bias = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    expert_of_row = torch.tensor([0] * 3 + [1] * 1020)
    per_row(bias, expert_of_row).sum().backward()
    assert bias.grad is not None
    # Adding ones in bfloat16 stops at 256.
    assert bias.grad.flatten().tolist() == [3.0, 1020.0]
