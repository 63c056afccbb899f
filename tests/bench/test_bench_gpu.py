"""The CUDA path on a real GPU: clock, memory, sync counts, and a whole run."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.bench.memory import CudaAllocatorPeak, measure_peaks
from harness.bench.phase_clock import CudaClock, time_step
from harness.bench.profile import CudaSyncProbe
from harness.bench.runner import run_plan
from harness.bench.timed_device import open_cuda
from harness.errors import UsageError
from harness.workload import Variant
from tests.toys.bench_toys import BASELINE, FAST, ToyWorkload, toy_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.gpu

MIB = 1 << 20
NUM_READS = 3


class Phases:
    """A workload of functions, for probes that need nothing else."""

    def __init__(self, **phases: Callable[[], Any]) -> None:
        self.forward = phases.get("forward", lambda: None)
        self.backward = phases.get("backward", lambda: None)
        self.optimizer_step = phases.get("optimizer_step", lambda: None)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", 0)


def busy(device: torch.device, rounds: int) -> Callable[[], None]:
    matrix = torch.randn(2048, 2048, device=device)

    def work() -> None:
        product = matrix
        for _ in range(rounds):
            product = product @ matrix

    return work


def test_phases_follow_the_work_queued_in_them(device: torch.device) -> None:
    workload = Phases(forward=busy(device, 2), backward=busy(device, 40))
    clock = CudaClock(device)
    time_step(workload, clock)  # type: ignore[arg-type]
    times = time_step(workload, clock)  # type: ignore[arg-type]
    assert times["backward"] > 4 * times["forward"] > 0
    assert times["batch"] >= times["forward"] + times["backward"] + times["optimizer"] - 0.01


def test_work_left_on_a_side_stream_is_part_of_the_batch(device: torch.device) -> None:
    side, work = torch.cuda.Stream(device), busy(device, 100)

    def leave_behind() -> None:
        with torch.cuda.stream(side):
            work()

    clock = CudaClock(device)
    workload = Phases(optimizer_step=leave_behind)
    time_step(workload, clock)  # type: ignore[arg-type]
    hidden = time_step(workload, clock)  # type: ignore[arg-type]
    assert hidden["batch"] > 2 * (hidden["forward"] + hidden["backward"] + hidden["optimizer"])


def test_the_allocators_peak_is_exact_by_phase(device: torch.device) -> None:
    def allocate(mib: int) -> Callable[[], None]:
        return lambda: del_(torch.empty(mib * MIB, dtype=torch.uint8, device=device))

    torch.cuda.synchronize(device)
    held = torch.cuda.memory_allocated(device)
    workload = Phases(forward=allocate(8), backward=allocate(32))
    peaks = {
        peak.phase: peak.peak_bytes - held
        for peak in measure_peaks(
            workload,  # type: ignore[arg-type]
            [CudaAllocatorPeak(device)],
            arm="x",
            source="measured",
        )
    }
    assert peaks == {"forward": 8 * MIB, "backward": 32 * MIB, "optimizer": 0, "batch": 32 * MIB}


def del_(tensor: torch.Tensor) -> None:
    del tensor


def test_three_reads_are_three_syncs(device: torch.device) -> None:
    values = torch.ones(NUM_READS, device=device)
    work = busy(device, 5)

    def forward() -> None:
        work()
        for index in range(NUM_READS):
            values[index].item()

    # The first product makes the library's handle, which may wait on its own account.
    forward()
    syncs, overlap, report, trace = CudaSyncProbe(device, "measured")(
        Phases(forward=forward, backward=work),  # type: ignore[arg-type]
        "x",
    )
    assert {sync.phase: sync.count for sync in syncs} == {
        "forward": NUM_READS,
        "backward": 0,
        "optimizer": 0,
        "batch": NUM_READS,
    }
    assert syncs[0].blocked_ms is not None
    assert syncs[0].blocked_ms > 0
    assert overlap[0].copy_ms > 0
    assert report is not None
    assert report.syncs_per_step == NUM_READS
    assert trace is not None
    assert b"ProfilerStep#1" in gzip.decompress(trace)


def test_a_copy_on_its_own_stream_overlaps_and_one_on_the_compute_stream_does_not(
    device: torch.device,
) -> None:
    host = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(host, device=device)
    side, work = torch.cuda.Stream(device), busy(device, 200)

    def beside() -> None:
        with torch.cuda.stream(side):
            target.copy_(host, non_blocking=True)
        work()

    def in_line() -> None:
        target.copy_(host, non_blocking=True)
        work()

    def overlap_of(forward: Callable[[], None]) -> float | None:
        _, overlap, _ = CudaSyncProbe(device, "measured")(
            Phases(forward=forward),  # type: ignore[arg-type]
            "x",
        )
        return overlap[0].overlap

    in_line_share, beside_share = overlap_of(in_line), overlap_of(beside)
    assert in_line_share is not None
    assert beside_share is not None
    assert in_line_share < 0.05
    assert beside_share > 0.5


@dataclass
class CudaToy(ToyWorkload):
    """The toy on the GPU; its variant `fast` leaves out the reads that `slow` makes."""

    device: torch.device = field(default_factory=lambda: torch.device("cuda", 0))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model.to(self.device)
        self.batches = self.batches.to(self.device)

    def forward(self) -> torch.Tensor:
        self.loss = self.model(self.batches[self.batch])
        if self.model.variant == "slow":
            for _ in range(NUM_READS):
                self.loss.detach().item()
        return self.loss


@dataclass(frozen=True)
class CudaFix:
    name: str = "toy-fix"
    summary: str = "toy"
    trade_off: str = "none"
    variants: tuple[Variant, ...] = (
        Variant("slow", "baseline", "reads"),
        Variant("fast", "published", "does not"),
    )

    def requires(self, model: nn.Module, variant: str) -> None:
        return None

    def attach(self, model: nn.Module) -> Any:
        from tests.toys.bench_toys import ToyAttachment

        return ToyAttachment(model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        return 0.0, "the same order"


def build_on_cuda(spec: Mapping[str, Any]) -> Any:
    return CudaToy(spec), {"toy-fix": CudaFix()}


def test_a_whole_run_on_the_gpu_has_syncs_memory_and_parity() -> None:
    record, _ = run_plan(
        toy_plan(
            BASELINE,
            FAST,
            device="cuda",
            backend=None,
            factory="tests.bench.test_bench_gpu:build_on_cuda",
        )
    )
    assert record.status == "complete", record.reason
    assert all(parity.passed for parity in record.parity)
    assert {peak.kind for peak in record.memory} == {"cuda-allocator"}
    forward = {sync.arm: sync.count for sync in record.syncs if sync.phase == "forward"}
    assert forward["baseline"] - forward["fast"] == NUM_READS
    assert record.machine.gpus


def test_a_gpu_that_runs_out_of_memory_is_told(device: torch.device) -> None:
    record, _ = run_plan(
        toy_plan(
            device="cuda",
            backend=None,
            factory="tests.bench.test_bench_gpu:build_too_large",
        )
    )
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith("Out of memory while the workload was built")


def build_too_large(spec: Mapping[str, Any]) -> Any:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    return build_on_cuda(spec)


def test_an_index_past_the_last_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="CUDA devices are visible"):
        open_cuda("cuda:99")
