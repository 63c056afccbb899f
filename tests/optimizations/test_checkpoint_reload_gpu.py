"""The CUDA engine: the same bits under any delay, copies beside compute, less memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from optimizations.checkpoint_reload import CheckpointReload
from optimizations.copy_engine import CudaCopyEngine
from tests.optimizations.checkpoint_stack import (
    WIDTH,
    assert_same_bits,
    make_stack,
    rows,
    step,
    take_gradients,
)

if TYPE_CHECKING:
    from optimizations.checkpoint_reload import CheckpointReloadAttachment
    from tests.optimizations.checkpoint_stack import Stack

pytestmark = pytest.mark.gpu

OFFLOADING = ("single-buffer", "double-buffer", "prefetch")
NUM_LAYERS = 6
NUM_ROWS = 4096
LONG = 20_000_000
"""Clock cycles: some ten milliseconds, far longer than a launch."""


class DelayedEngine(CudaCopyEngine):
    """Delays copies on their own streams and keeps when each reload ran."""

    def __init__(self, device: torch.device, *, shared_lane: bool, seed: int | None) -> None:
        super().__init__(device, shared_lane=shared_lane)
        self._random = None if seed is None else random.Random(seed)
        self.reloads: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.ignores_marks = False

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        cycles = LONG if self._random is None else self._random.choice([0, LONG // 20, LONG])
        torch.cuda._sleep(cycles)
        super().copy(source, target)
        end.record()
        if target.is_cuda:
            self.reloads.append((start, end))

    def wait(self, mark: object, *reads: torch.Tensor) -> None:
        if not self.ignores_marks:
            super().wait(mark, *reads)


def attach(
    model: Stack, variant: str, seed: int | None = None
) -> tuple[CheckpointReloadAttachment, list[DelayedEngine]]:
    engines: list[DelayedEngine] = []

    def open_engine(device: torch.device, *, shared_lane: bool) -> DelayedEngine:
        engines.append(DelayedEngine(device, shared_lane=shared_lane, seed=seed))
        return engines[-1]

    attachment = CheckpointReload(min_bytes=0, open_engine=open_engine).attach(model)
    attachment.select(variant)
    return attachment, engines


def cuda_stack() -> Stack:
    return make_stack(NUM_LAYERS).cuda()


def cuda_rows(num_rows: int = NUM_ROWS) -> torch.Tensor:
    return rows(num_rows).cuda()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_cuda_variants_give_the_bits_of_plain(variant: str) -> None:
    model = cuda_stack()
    sizes = (NUM_ROWS, 64, 2 * NUM_ROWS)
    expected = [step(model, cuda_rows(size)) for size in sizes]
    attachment = CheckpointReload(min_bytes=0).attach(model)
    attachment.select(variant)
    for size, wanted in zip(sizes, expected, strict=True):
        assert_same_bits(step(model, cuda_rows(size)), wanted)
    attachment.detach()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", OFFLOADING)
def test_random_delays_of_streams_never_change_a_bit(variant: str, seed: int) -> None:
    model = cuda_stack()
    expected = step(model, cuda_rows(), cuda_rows())
    attachment, _ = attach(model, variant, seed)
    delays = random.Random(seed)
    for layer in model.layers:
        layer.probe = lambda _, hidden: torch.cuda._sleep(delays.choice([0, LONG // 20, LONG]))
    for _ in range(3):
        assert_same_bits(step(model, cuda_rows(), cuda_rows()), expected)
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_a_missing_wait_is_noticed_on_cuda(variant: str) -> None:
    model = cuda_stack()
    expected = step(model, cuda_rows())
    attachment, engines = attach(model, variant)
    assert_same_bits(step(model, cuda_rows()), expected)
    torch.manual_seed(7)
    loss = model(cuda_rows())
    engines[0].ignores_marks = True
    loss.backward()
    with pytest.raises(AssertionError, match="differs"):
        assert_same_bits({"loss": loss.detach(), **take_gradients(model)}, expected)
    engines[0].ignores_marks = False
    attachment.detach()


@pytest.mark.parametrize(
    ("variant", "overlaps"), [("single-buffer", False), ("double-buffer", True), ("prefetch", True)]
)
def test_only_more_than_one_buffer_lets_reloads_run_beside_compute(
    variant: str, overlaps: bool
) -> None:
    model = cuda_stack()
    attachment, engines = attach(model, variant)
    step(model, cuda_rows())
    origin = torch.cuda.Event(enable_timing=True)
    origin.record()
    loss = model(cuda_rows())
    compute: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def busy(_index: int, _hidden: torch.Tensor) -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda._sleep(LONG)
        end.record()
        compute.append((start, end))

    for layer in model.layers:
        layer.probe = busy
    engines[0].reloads.clear()
    loss.backward()
    torch.cuda.synchronize()

    def interval(pair: tuple[torch.cuda.Event, torch.cuda.Event]) -> tuple[float, float]:
        return origin.elapsed_time(pair[0]), origin.elapsed_time(pair[1])

    num_beside = sum(
        copy_start < compute_end and compute_start < copy_end
        for copy_start, copy_end in map(interval, engines[0].reloads)
        for compute_start, compute_end in map(interval, compute)
    )
    # The first reload of `double-buffer` finds nothing to run beside but the last layer.
    assert num_beside >= NUM_LAYERS - 3 if overlaps else num_beside == 0
    attachment.detach()


@pytest.mark.parametrize("variant", OFFLOADING)
def test_training_on_a_side_stream_gives_the_same_bits(variant: str) -> None:
    model = cuda_stack()
    expected = step(model, cuda_rows())
    attachment, _ = attach(model, variant, seed=0)
    side = torch.cuda.Stream()
    step(model, cuda_rows())  # on the default stream, so that buffers stem from there
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            assert_same_bits(step(model, cuda_rows()), expected)
    torch.cuda.current_stream().wait_stream(side)
    attachment.detach()


def test_offload_lowers_the_peak_by_the_inputs_that_left() -> None:
    num_rows = 2**20
    input_bytes = num_rows * WIDTH * 8
    model = make_stack(16).cuda()

    def peak_bytes(variant: str) -> int:
        attachment = CheckpointReload().attach(model)
        attachment.select(variant)
        hidden = cuda_rows(num_rows)
        step(model, hidden)
        torch.cuda.reset_peak_memory_stats()
        step(model, hidden)
        peak = torch.cuda.max_memory_allocated()
        attachment.detach()
        return peak

    plain = peak_bytes("plain")
    for variant in OFFLOADING:
        # Sixteen inputs, less what stays and the buffers they come back through.
        assert plain - peak_bytes(variant) > 8 * input_bytes
