"""Memory peaks against sizes that are known beforehand."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.bench.memory import RssPeak, TensorBytesPeak, measure_peaks

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
NUMEL = MIB // 4
"""Of a float32 tensor of one MiB."""


class Phases:
    """A workload of three functions."""

    def __init__(self, **phases: Callable[[], Any]) -> None:
        self.forward = phases.get("forward", lambda: None)
        self.backward = phases.get("backward", lambda: None)
        self.optimizer_step = phases.get("optimizer_step", lambda: None)


def peaks_mib(workload: Any, probe: Any) -> dict[str, float]:
    peaks = measure_peaks(workload, [probe], arm="x", source="measured")
    assert {peak.kind for peak in peaks} == {probe.kind}
    return {peak.phase: peak.peak_bytes / MIB for peak in peaks}


def test_the_high_water_mark_of_live_tensors_is_exact_in_each_phase() -> None:
    kept: list[torch.Tensor] = []

    def forward() -> None:
        kept.append(torch.zeros(2 * NUMEL))
        temporary = torch.zeros(3 * NUMEL)
        del temporary
        kept.append(torch.zeros(NUMEL))

    def backward() -> None:
        kept.pop()
        torch.zeros(5 * NUMEL)

    workload = Phases(forward=forward, backward=backward, optimizer_step=kept.clear)
    assert peaks_mib(workload, TensorBytesPeak()) == {
        "forward": 5.0,
        "backward": 7.0,
        "optimizer": 2.0,
        "batch": 7.0,
    }


def test_views_and_in_place_writes_take_no_memory_of_their_own() -> None:
    def forward() -> None:
        tensor = torch.zeros(4 * NUMEL)
        tensor.view(2, -1)[0].add_(1)
        tensor.t().relu_()

    assert peaks_mib(Phases(forward=forward), TensorBytesPeak())["forward"] == 4.0


def test_what_was_there_before_counts_from_its_first_use() -> None:
    weights = torch.zeros(6 * NUMEL)
    workload = Phases(forward=lambda: weights.sum(), backward=lambda: torch.zeros(NUMEL))
    peaks = peaks_mib(workload, TensorBytesPeak())
    assert peaks["backward"] == pytest.approx(7.0, abs=0.01)
    assert peaks["optimizer"] == pytest.approx(6.0, abs=0.01)


def test_activations_kept_for_backward_count_until_it_has_run() -> None:
    x = torch.zeros(NUMEL, requires_grad=True)
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append((x.exp().exp().exp()).sum())

    def backward() -> None:
        losses.pop().backward()
        x.grad = None

    workload = Phases(forward=forward, backward=backward)
    peaks = peaks_mib(workload, TensorBytesPeak())
    # x and the three results, which their own backward needs.
    assert peaks["forward"] == pytest.approx(4.0, abs=0.01)
    assert peaks["optimizer"] == pytest.approx(1.0, abs=0.01)


def test_a_storage_that_grows_in_place_counts_with_its_new_size() -> None:
    def forward() -> None:
        tensor = torch.zeros(NUMEL)
        tensor.resize_(3 * NUMEL)
        tensor.add_(1)

    assert peaks_mib(Phases(forward=forward), TensorBytesPeak())["forward"] == 3.0


def test_a_tensor_that_dies_on_another_thread_is_let_go() -> None:
    kept: list[torch.Tensor] = []

    def backward() -> None:
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()

    workload = Phases(forward=lambda: kept.append(torch.zeros(2 * NUMEL)), backward=backward)
    peaks = peaks_mib(workload, TensorBytesPeak())
    assert (peaks["backward"], peaks["optimizer"]) == (2.0, 0.0)


@pytest.mark.skipif(not RssPeak.available(), reason="this kernel keeps no resettable VmHWM")
def test_resident_memory_sees_a_peak_that_is_over_when_the_phase_ends() -> None:
    workload = Phases(
        forward=lambda: torch.ones(64 * NUMEL).sum(), backward=lambda: torch.ones(1).sum()
    )
    peaks = peaks_mib(workload, RssPeak())
    assert peaks["forward"] - peaks["backward"] > 48
    assert peaks["batch"] == max(peaks["forward"], peaks["backward"], peaks["optimizer"])
