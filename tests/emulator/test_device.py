"""The emulated device as Python code sees it, and that nothing of it stays behind."""

from __future__ import annotations

import copy
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
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
