"""Calibration of the CPU at hand, and the check that is made with it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from gapless.calibrate import calibrate_device, check_on_cpu, cpu_costs
from harness.clock.calibration_kernels import WorkCounter
from harness.errors import UsageError


def test_the_counter_tells_what_the_autograd_engine_calls() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    with WorkCounter() as counter:
        torch.autograd.backward((x @ x).sum())
    calls = [(work.op, in_autograd) for work, in_autograd in counter.works]
    assert calls[:2] == [("aten::mm", False), ("aten::sum", False)]
    assert ("aten::mm", True) in calls


@pytest.mark.slow  # times ops for about ten seconds
def test_a_profile_of_this_cpu_rises_and_prices_small_steps() -> None:
    profile, checks = check_on_cpu()
    assert profile.key == "cpu"
    for curve in profile.curves.values():
        assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(curve))
    assert {check.phase for check in checks} == {"forward", "backward"}
    # How close it comes depends on how busy the machine is; docs/model-validation.md has figures.
    assert all(check.modelled_ms > 0 and check.measured_ms > 0 for check in checks)
    assert cpu_costs(profile).host.eager_ns == profile.host_ns["eager_ns"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")
def test_a_gpu_that_is_not_here_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="no GPU here"):
        calibrate_device("cuda")
