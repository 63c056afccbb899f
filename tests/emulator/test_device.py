"""The emulated device as Python code sees it, and that nothing of it stays behind."""

from __future__ import annotations

import copy
import gc
import importlib.util
import io
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.clock.gpus import find_gpu, gpu_names
from harness.emulator.device import EmulatedDevice
from harness.emulator.tensors.tensor import EmulatedTensor
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.emulator.tensors.op_events import OpEvent
    from harness.emulator.tensors.stream_book import StreamAction


class Recorder:
    def __init__(self, every_op: bool = True) -> None:
        self.wants_every_op = every_op
        self.events: list[OpEvent] = []
        self.actions: list[StreamAction] = []

    def on_event(self, event: OpEvent) -> None:
        self.events.append(event)

    def on_stream_action(self, action: StreamAction) -> None:
        self.actions.append(action)


def optimizer_hooks() -> Any:
    return sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks


def surroundings() -> dict[str, Any]:
    """Everything the device replaces while it is active."""
    return {
        "cuda": dict(vars(torch.cuda)),
        "cuda.memory": dict(vars(torch.cuda.memory)),
        "accelerator": dict(vars(torch.accelerator)),
        "tensor": {n: vars(torch.Tensor).get(n) for n in ("to", "cuda", "pin_memory", "is_pinned")},
        "torch": {n: getattr(torch, n) for n in ("tensor", "as_tensor", "load", "Generator")},
        "compile": (torch.compile, nn.Module.compile, nn.Module.__call__),
        "autocast": (torch.set_autocast_enabled, torch.is_autocast_enabled("cuda")),
        "find_spec": importlib.util.find_spec,
        "swap": torch.__future__.get_swap_module_params_on_conversion(),
        "threads": torch.autograd.is_multithreading_enabled(),
        "lift": torch._C._only_lift_cpu_tensors(),
        "modes": torch._C._len_torch_dispatch_stack(),
        "optimizer hooks": len(optimizer_hooks()),
    }


def test_python_believes_in_one_gpu() -> None:
    with EmulatedDevice("A100"):
        x = torch.ones(2, 3, device="cuda")
        assert (x.device, x.is_cuda, x.get_device()) == (torch.device("cuda", 0), True, 0)
        assert x.type() == "torch.cuda.FloatTensor"
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (8, 0)
        assert "A100" in torch.cuda.get_device_name()
        assert torch.cuda.mem_get_info()[1] == find_gpu("A100").memory_bytes
        assert torch.accelerator.current_accelerator() == torch.device("cuda")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.zeros(2, device="cuda:0"),
        lambda: torch.zeros(2, device=torch.device("cuda")),
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
        lambda: torch.as_tensor([1.0, 2.0], device=torch.device("cuda", 0)),
        lambda: torch.zeros(2).cuda(),
        lambda: torch.zeros(2).to("cuda"),
        lambda: torch.zeros(2).to(0),
        lambda: torch.zeros(2).to(device="cuda", dtype=torch.float64),
        lambda: torch.zeros(2).to(torch.zeros(1, device="cuda")),
        lambda: torch.zeros(1, device="cuda").new_tensor([1, 2]),
        lambda: torch.empty_like(torch.zeros(2), device="cuda"),
        lambda: nn.Linear(1, 2, device="cuda").weight,
        lambda: nn.Linear(1, 2).cuda().bias,
    ],
)
def test_every_way_to_name_the_device(make: Any) -> None:
    with EmulatedDevice():
        assert make().device == torch.device("cuda", 0)


def test_default_device_reaches_constructors() -> None:
    with EmulatedDevice(), torch.device("cuda"):
        assert torch.tensor([1]).is_cuda
        assert torch.ones(2).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(fails: bool) -> None:
    EmulatedDevice()  # the one-time registration is not what is tested
    before = surroundings()
    try:
        with EmulatedDevice():
            torch.zeros(1, device="cuda")
            if fails:
                raise KeyError("the step failed")
    except KeyError:
        pass
    assert surroundings() == before
    assert not torch.accelerator.is_available() or torch.cuda.is_available()


def test_devices_do_not_nest_and_are_used_once() -> None:
    device = EmulatedDevice()
    with device, pytest.raises(UsageError, match="do not nest"), EmulatedDevice():
        pass
    with pytest.raises(UsageError, match="new one"), device:
        pass
    with EmulatedDevice():
        assert torch.ones(1, device="cuda").is_cuda


def test_mixing_devices_fails_as_on_cuda() -> None:
    with EmulatedDevice():
        x = torch.ones(3, device="cuda")
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(3, 3) @ x
        assert (x * torch.tensor(2.0)).is_cuda  # a 0-dim host tensor is a kernel argument
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            x.numpy()
        with pytest.raises(UsageError, match="H100"):
            EmulatedDevice("GTX9999")


def test_a_parameter_moved_to_the_device_stays_the_same_object() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with EmulatedDevice():
        model.to("cuda")
        assert model[0].weight is model[1].weight
        assert optimizer.param_groups[0]["params"][0] is model[0].weight
        assert isinstance(model[0].weight, nn.Parameter)
        before = model[0].weight.detach().cpu()
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        optimizer.step()
        assert not torch.equal(before, model[0].weight.detach().cpu())


def test_a_training_step_computes_what_the_cpu_computes() -> None:
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        ids = torch.arange(6).view(2, 3).to(device)
        for _ in range(3):
            heads = model(ids).view(2, 3, 2, 4).transpose(1, 2)
            out = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            mask = out > 0
            (out[mask].square().mean() + out.std()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().cpu() for p in model.parameters()]

    on_cpu = train("cpu")
    with EmulatedDevice():
        emulated = train("cuda")
    for ours, theirs in zip(emulated, on_cpu, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_gives_values_and_gradients_of_the_reference(
    kv_heads: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    tensors = [torch.randn(2, heads, 5, 6, dtype=dtype) for heads in (4, kv_heads, kv_heads)]
    grad = torch.randn(2, 4, 5, 6, dtype=dtype)

    def attend(device: str) -> list[torch.Tensor]:
        q, k, v = (t.detach().to(device).requires_grad_() for t in tensors)
        out = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=kv_heads != 4
        )
        out.backward(grad.to(device))
        assert q.grad is not None
        assert k.grad is not None
        assert v.grad is not None
        return [t.detach().cpu().float() for t in (out, q.grad, k.grad, v.grad)]

    expected = attend("cpu")
    with EmulatedDevice():
        found = attend("cuda")
    tolerance = 5e-2 if dtype is torch.bfloat16 else 1e-4
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_recurrent_cells_give_the_cpu_s_values_and_gradients(cell: Any) -> None:
    torch.manual_seed(2)
    layer, x = cell(3, 4), torch.randn(5, 2, 3)

    def run(device: str) -> list[torch.Tensor]:
        moved = copy.deepcopy(layer).to(device)
        moved(x.to(device))[0].square().sum().backward()
        return [p.grad.cpu() for p in moved.parameters() if p.grad is not None]

    expected = run("cpu")
    with EmulatedDevice():
        found = run("cuda")
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_autocast_casts_by_the_cuda_lists() -> None:
    with EmulatedDevice():
        layer, x = nn.Linear(4, 4, device="cuda"), torch.rand(2, 4, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            product = layer(x)
            assert product.dtype is torch.bfloat16
            assert product.softmax(-1).dtype is torch.float32
            assert torch.nn.functional.mse_loss(product, product).dtype is torch.float32
            with torch.autocast("cuda", enabled=False):
                assert layer(x).dtype is torch.float32
        assert layer(x).dtype is torch.float32
        product.sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.dtype is torch.float32


def test_errors_inside_backward_reach_the_caller() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            raise ValueError("in a custom function")

    def unpack(_: Any) -> torch.Tensor:
        raise KeyError("in a saved-tensor hook")

    with EmulatedDevice():
        x = torch.rand(3, device="cuda", requires_grad=True)
        with pytest.raises(ValueError, match="custom function"):
            Fails.apply(x).sum().backward()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            y = (x * x).sum()
        with pytest.raises(KeyError, match="saved-tensor hook"):
            y.backward()
        z = x * 2
        z.register_hook(lambda g: g + torch.ones(3))
        with pytest.raises(RuntimeError, match="same device"):
            z.sum().backward()
        (x * 2).sum().backward()  # and the engine still works
        assert x.grad is not None


def test_memory_is_live_bytes_by_storage() -> None:
    with EmulatedDevice():
        base = torch.cuda.memory_allocated()
        x = torch.zeros(1024, device="cuda")
        y = x.view(32, 32)[3:]
        assert torch.cuda.memory_allocated() - base == 4096
        z = x + 1
        assert torch.cuda.max_memory_allocated() - base == 8192
        del x, z
        gc.collect()
        assert torch.cuda.memory_allocated() - base == 4096
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
        del y
        gc.collect()
        assert torch.cuda.memory_allocated() == base


def test_streams_and_events_keep_books() -> None:
    recorder = Recorder()
    device = EmulatedDevice()
    device.add_observer(recorder)
    with device:
        side = torch.cuda.Stream()
        x = torch.ones(4, device="cuda")
        with torch.cuda.stream(side):
            y = x * 2
            done = side.record_event()
        torch.cuda.current_stream().wait_event(done)
        y.record_stream(torch.cuda.current_stream())
        y + 1
    streams = {event.op: event.stream for event in recorder.events}
    assert streams["aten::mul.Tensor"] == side.number != 0
    assert streams["aten::add.Tensor"] == 0
    record, wait, keep = recorder.actions
    assert (record.kind, record.stream, record.event) == ("record", side.number, done.number)
    assert (wait.kind, wait.stream, wait.event) == ("wait", 0, done.number)
    assert keep.kind == "record_tensor"
    assert keep.storage is not None


def test_an_observer_of_every_op_gets_versions_and_signatures() -> None:
    recorder = Recorder()
    device = EmulatedDevice()
    device.add_observer(recorder)
    with device:
        x = torch.ones(4, device="cuda")
        a, b = x.cos(), x.cos()
        x.add_(1)
        c = x.cos()
        del a, b, c
    first, second, third = (e for e in recorder.events if e.op == "aten::cos")
    assert first.signature == second.signature == third.signature
    assert first.reads == second.reads
    assert first.reads[0].storage == third.reads[0].storage
    assert third.reads[0].version == first.reads[0].version + 1
    assert first.writes[0].storage != second.writes[0].storage
    positions = [event.position for event in recorder.events]
    assert positions == sorted(set(positions))


def test_an_observer_of_waits_hears_of_nothing_else() -> None:
    recorder = Recorder(every_op=False)
    device = EmulatedDevice()
    device.add_observer(recorder)
    with device:
        x = torch.ones(4, device="cuda")
        (x + 1).sum().item()
    assert [event.op for event in recorder.events] == ["aten::_local_scalar_dense"]


def test_copies_of_models_and_checkpoints() -> None:
    with EmulatedDevice():
        model = nn.Linear(3, 2, device="cuda")
        twin = copy.deepcopy(model)
        assert twin.weight.is_cuda
        assert twin.weight is not model.weight
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        state = torch.load(buffer, map_location="cuda")
        assert state["weight"].is_cuda
        twin.load_state_dict(state)
        assert torch.equal(twin.weight, model.weight)
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu")["bias"].device.type == "cpu"


def test_printing_reads_like_cuda() -> None:
    with EmulatedDevice():
        assert repr(torch.ones(2, device="cuda")) == "tensor([1., 1.], device='cuda:0')"
        assert f"{torch.full((), 0.5, device='cuda'):.2f}" == "0.50"


def test_pinned_memory_is_remembered_by_storage() -> None:
    with EmulatedDevice():
        host = torch.ones(4).pin_memory()
        assert host.is_pinned()
        assert host[1:].is_pinned()
        assert not torch.ones(4).is_pinned()
        assert torch.empty(2, pin_memory=True).is_pinned()
        data = torch.utils.data.TensorDataset(torch.ones(4, 2))
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True):
            assert batch.is_pinned()


def test_in_place_layout_changes_are_followed() -> None:
    for shapes_only in (False, True):
        with EmulatedDevice(shapes_only=shapes_only):
            x = torch.rand(30, 40, device="cuda")
            x.t_()
            assert (x.shape, x.stride()) == ((40, 30), (1, 40))
            x.unsqueeze_(0)
            assert x.shape == (1, 40, 30)
            assert (x + 1).shape == (1, 40, 30)


def test_compile_runs_eagerly_and_says_so() -> None:
    device = EmulatedDevice()
    with device:
        double = torch.compile(lambda x: x * 2)
        assert double(torch.ones(1, device="cuda")).item() == 2
        model = nn.Linear(2, 2, device="cuda")
        model.compile()
        model(torch.ones(1, 2, device="cuda"))
    assert ["torch.compile" in note for note in device.notes] == [True]


def test_many_devices_leave_memory_and_hooks_flat() -> None:
    def once() -> None:
        with EmulatedDevice():
            layer = nn.Linear(8, 8, device="cuda")
            optimizer = torch.optim.AdamW(layer.parameters())
            layer(torch.rand(2, 8, device="cuda")).sum().backward()
            optimizer.step()

    once()
    gc.collect()
    objects, around = _count_ours(), surroundings()
    for _ in range(20):
        once()
    gc.collect()
    assert _count_ours() <= objects
    assert surroundings() == around
    assert threading.active_count() < 20


def _count_ours() -> int:
    return sum(1 for o in gc.get_objects() if type(o) in (EmulatedTensor, EmulatedDevice))


def test_each_gpu_of_the_table_is_whole() -> None:
    for name in gpu_names():
        gpu = find_gpu(name.lower())
        assert gpu.memory_bytes > 10**10
        assert gpu.capability >= (7, 0)
        assert gpu.num_multiprocessors > 0
