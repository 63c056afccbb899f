"""Things that training programs do beside tensors and modules, on the emulated device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

from harness.emulator.device import EmulatedDevice
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[False, True], ids=["values", "shapes"])
def device(request: pytest.FixtureRequest) -> Iterator[EmulatedDevice]:
    with EmulatedDevice("H100", shapes_only=request.param) as emulated:
        yield emulated


@pytest.fixture
def with_values() -> Iterator[EmulatedDevice]:
    with EmulatedDevice("H100") as emulated:
        yield emulated


def test_there_is_one_gpu(device: EmulatedDevice) -> None:
    for ask in (
        lambda: torch.ones(2, device="cuda:1"),
        lambda: torch.ones(2).to("cuda:1"),
        lambda: torch.ones(2).cuda(1),
        lambda: torch.cuda.set_device("cuda:1"),
    ):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            ask()
    assert torch.ones(2).to(0).device == torch.device("cuda:0")


def test_cuda_graphs_are_refused_in_a_sentence(device: EmulatedDevice) -> None:
    for ask in (
        torch.cuda.CUDAGraph,
        lambda: torch.cuda.make_graphed_callables(nn.Linear(2, 2), ()),
    ):
        with pytest.raises(WorkloadError, match="CUDA graphs cannot be captured"):
            ask()


def test_old_tensor_types(device: EmulatedDevice) -> None:
    made = torch.cuda.FloatTensor([1.0, 2.0])
    assert made.is_cuda
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
    assert isinstance(made, torch.cuda.FloatTensor)
    assert not isinstance(made, torch.cuda.LongTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert made.type("torch.cuda.HalfTensor").dtype is torch.float16
    assert made.type() == "torch.cuda.FloatTensor"


def test_a_module_is_converted_while_a_graph_holds_its_weights(device: EmulatedDevice) -> None:
    module = nn.Conv2d(3, 4, 3).to("cuda")
    loss = module(torch.randn(1, 3, 8, 8, device="cuda")).sum()
    module.half()
    assert module.weight.is_cuda
    assert module.weight.dtype is torch.float16
    module.to("cpu")
    assert module.weight.device.type == "cpu"
    assert loss.requires_grad


def test_optimizers_and_clipping_take_their_foreach_way(device: EmulatedDevice) -> None:
    layer = nn.Linear(3, 3, device="cuda")
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(2, 3, device="cuda")).sum().backward()
    seen: list[str] = []
    device.dispatcher.pacer = lambda facts, *rest: seen.append(facts.name)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert "aten::_foreach_norm" in seen
    optimizer.step()
    assert "aten::_foreach_addcdiv_" in seen


def test_foreach_support_ends_with_the_device() -> None:
    from torch.optim import optimizer

    before = list(optimizer._foreach_supported_types)
    with EmulatedDevice("H100"):
        pass
    assert optimizer._foreach_supported_types == before


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own, on import
def test_hessian_through_zero_tensors(with_values: EmulatedDevice) -> None:
    x = torch.tensor([1.0, 2.0], device="cuda")
    found = torch.func.hessian(lambda v: (v**3).sum())(x)
    assert found.tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_jagged_tensors_hold_device_tensors(with_values: EmulatedDevice) -> None:
    parts = [torch.ones(n, 3, device="cuda") for n in (2, 4)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert (jagged * 2).values().sum().item() == 36.0


def test_attention_over_jagged_heads(with_values: EmulatedDevice) -> None:
    parts = [torch.ones(n, 4, device="cuda") for n in (2, 4)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    heads = jagged.unflatten(-1, (2, 2))
    assert heads.values().shape == (6, 2, 2)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_ctc_loss_takes_lengths_from_host_and_device(device: EmulatedDevice, where: str) -> None:
    scores = torch.randn(10, 2, 5, device="cuda").log_softmax(-1).requires_grad_()
    targets = torch.tensor([[1, 2, 3], [3, 4, 0]], device="cuda")
    lengths = torch.tensor([10, 9], device=where), torch.tensor([3, 2], device=where)
    F.ctc_loss(scores, targets, *lengths).backward()
    assert scores.grad is not None
    assert scores.grad.shape == scores.shape


def test_conjugates_are_the_cpu_s(with_values: EmulatedDevice) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j, 2 + 0j])
    assert torch.equal(
        torch.view_as_real(x.cuda().conj()).cpu(), torch.view_as_real(x.conj_physical())
    )
    torch.testing.assert_close(torch.fft.hfft(x.cuda()).cpu(), torch.fft.hfft(x))


def test_packed_sequences(device: EmulatedDevice) -> None:
    gru = nn.GRU(4, 8, batch_first=True).to("cuda")
    x = torch.randn(3, 5, 4, device="cuda")
    for lengths in ([3, 5, 2], [4, 4, 1]):
        packed = rnn.pack_padded_sequence(
            x, torch.tensor(lengths), batch_first=True, enforce_sorted=False
        )
        assert packed.data.shape == (sum(lengths), 4)
        out, _ = rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
        assert out.shape == (3, max(lengths), 8)
        out.sum().backward()


def test_an_op_without_meta_kernel_gives_its_shapes(device: EmulatedDevice) -> None:
    x = torch.randn(40, 50, device="cuda", requires_grad=True)
    F.multi_margin_loss(x, torch.randint(0, 50, (40,), device="cuda")).backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_sparse_gradients_are_refused_in_a_sentence(device: EmulatedDevice) -> None:
    table = nn.Embedding(16, 4, sparse=True, device="cuda")
    with pytest.raises(WorkloadError, match="sparse tensors are not emulated"):
        table(torch.tensor([1, 2], device="cuda")).sum().backward()


def test_nccl_of_one_rank(with_values: EmulatedDevice, tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2, device="cuda"), device_ids=[0])
        with model.no_sync():
            model(torch.ones(1, 2, device="cuda")).sum().backward()
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        summed = torch.ones(3, device="cuda")
        torch.distributed.all_reduce(summed)
    finally:
        torch.distributed.destroy_process_group()
    assert model.module.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert summed.tolist() == [1.0, 1.0, 1.0]
    assert any("gloo" in note for note in with_values.notes)


def test_a_profiler_in_the_step_traces_the_host(
    with_values: EmulatedDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=kinds) as profile:
            torch.ones(2, device="cuda") * 2
    assert profile.key_averages()
    assert "CUDA event" not in capfd.readouterr().err
    assert any("profiler" in note for note in with_values.notes)
