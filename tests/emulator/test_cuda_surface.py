"""What stands for torch's CUDA surface takes what torch takes, and gives what torch gives."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.emulator.cuda.gpu_answers import NEEDS_A_GPU
from harness.emulator.device import EmulatedDevice
from harness.emulator.tensors.patches import Patches
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = pytest.mark.parametrize("shapes_only", [False, True], ids=["values", "shapes"])


def replaced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str, Any, Any]]:
    """(owner, name, torch's own, stand-in) of all that a device replaces."""
    found: list[tuple[Any, str, Any, Any]] = []
    set_ = Patches.set

    def watched(self: Patches, owner: Any, name: str, value: Any) -> None:
        found.append((owner, name, getattr(owner, name, None), value))
        set_(self, owner, name, value)

    monkeypatch.setattr(Patches, "set", watched)
    with EmulatedDevice():
        pass
    return found


def signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def refused(own: inspect.Signature, stand_in: inspect.Signature) -> list[str]:
    """Why a call that torch's own signature allows is an error for the stand-in."""
    kinds = inspect.Parameter
    parameters = stand_in.parameters.values()
    if any(p.kind is kinds.VAR_KEYWORD for p in parameters) and any(
        p.kind is kinds.VAR_POSITIONAL for p in parameters
    ):
        return []
    keywords = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
    positional = [
        p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    reasons = []
    for place, (name, theirs) in enumerate(own.parameters.items()):
        if theirs.kind in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL):
            continue
        ours = stand_in.parameters.get(name)
        if theirs.kind is not kinds.POSITIONAL_ONLY and ours is None and not keywords:
            reasons.append(f"no parameter {name}")
        if theirs.kind is not kinds.KEYWORD_ONLY and place >= len(positional):
            reasons.append(f"no place for {name}")
        if theirs.kind is kinds.POSITIONAL_OR_KEYWORD and ours in positional:
            if positional[place].name != name:
                reasons.append(f"{name} at another place")
            if theirs.default is not kinds.empty and ours is not None:
                reasons += [] if ours.default is not kinds.empty else [f"{name} is required"]
    return reasons


def test_stand_ins_take_torchs_own_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, compared = {}, 0
    for owner, name, own, stand_in in replaced(monkeypatch):
        if not callable(own) or not callable(stand_in):
            continue
        theirs, ours = signature(own), signature(stand_in)
        if theirs is None or ours is None:
            continue
        compared += 1
        reasons = refused(theirs, ours)
        if reasons:
            wrong[f"{getattr(owner, '__name__', owner)}.{name}"] = reasons
    assert compared > 100
    assert wrong == {}


def test_streams_and_events_take_torchs_own_parameters() -> None:
    own = {
        cls.__name__: {
            name: inspect.signature(getattr(cls, name))
            for name in dir(cls)
            if not name.startswith("_") and inspect.isfunction(getattr(cls, name))
        }
        for cls in (torch.cuda.Stream, torch.cuda.Event)
    }
    with EmulatedDevice():
        for kind, methods in own.items():
            stand_in = getattr(torch.cuda, kind)
            for name, theirs in methods.items():
                if hasattr(stand_in, name):
                    assert refused(theirs, inspect.signature(getattr(stand_in, name))) == []


def test_every_public_function_of_torch_cuda_answers() -> None:
    with EmulatedDevice():
        for name in torch.cuda.__all__:
            function = getattr(torch.cuda, name)
            if not inspect.isfunction(function) or name in NEEDS_A_GPU:
                continue
            own = inspect.signature(function).parameters.values()
            if all(p.default is not p.empty for p in own):
                function()


@pytest.mark.parametrize("name", NEEDS_A_GPU)
def test_what_needs_a_real_gpu_says_so_and_does_not_say_shapes(name: str) -> None:
    with EmulatedDevice(), pytest.raises(WorkloadError, match=f"torch.cuda.{name} ") as caught:
        getattr(torch.cuda, name)()
    assert "shapes" not in str(caught.value)


def test_a_stream_is_entered_by_its_keyword() -> None:
    with EmulatedDevice():
        side = torch.cuda.Stream()
        with torch.cuda.stream(stream=side):
            assert torch.cuda.current_stream() == side
        with torch.cuda.StreamContext(side):
            assert torch.cuda.current_stream() == side
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == torch.cuda.default_stream()


# ---- inference mode


@MODES
def test_views_of_ordinary_tensors_stay_ordinary_in_inference_mode(shapes_only: bool) -> None:
    views: list[Callable[[torch.Tensor], Any]] = [
        lambda x: x.view(-1), lambda x: x[:2], lambda x: x.t(), lambda x: x.unbind(),
        lambda x: x.split(2), lambda x: x.detach(), lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.expand(3, 4, 8), lambda x: x.chunk(2), lambda x: x.as_strided((2,), (1,)),
    ]  # fmt: skip
    with EmulatedDevice(shapes_only=shapes_only):
        x = torch.randn(4, 8, device="cuda")
        with torch.inference_mode():
            made = torch.ones(4, 8, device="cuda")
            for view in views:
                results = view(x)
                for result in results if isinstance(results, tuple) else (results,):
                    assert result.is_cuda
                    assert not result.is_inference()
            assert made.is_inference()
            assert made.view(-1).is_inference()
            assert (x + 1).is_inference()
        x.view(-1).requires_grad_(True)


# ---- factories that leave the device


@MODES
@pytest.mark.parametrize(
    "make",
    [
        lambda x, **on: torch.empty_like(x, **on),
        lambda x, **on: torch.zeros_like(x, **on),
        lambda x, **on: torch.full_like(x, 2.0, **on),
        lambda x, **on: torch.randn_like(x, **on),
        lambda x, **on: x.new_empty((4, 8), **on),
        lambda x, **on: x.new_zeros((4, 8), **on),
        lambda x, **on: x.new_full((4, 8), 1.0, **on),
    ],
)
def test_factories_make_host_tensors_from_device_tensors(make: Any, shapes_only: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only) as device:
        x = torch.randn(4, 8, device="cuda")
        ops = device.dispatcher.num_ops
        host = make(x, device="cpu")
        pinned = make(x, device="cpu", pin_memory=True)
        assert device.dispatcher.num_ops == ops, "nothing ran on the device"
        assert type(host) is torch.Tensor
        assert host.device.type == "cpu"
        assert host.shape == (4, 8)
        assert pinned.is_pinned()
        assert not host.is_pinned()
        assert make(x, device="meta").is_meta
        assert make(host, device="cuda").is_cuda


# ---- storages, saving and loading


# ---- names and defaults


@MODES
def test_the_internal_name_of_the_device_is_not_to_be_seen(shapes_only: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only):
        first = torch.device(0)
        assert str(first) == "cuda:0"
        assert torch.ones(1, device=first).device == first
        assert isinstance(first, torch.device)
        assert copy.deepcopy(first) == pickle.loads(pickle.dumps(first)) == first
        assert torch._C._get_accelerator().type == "cuda"
        assert torch.get_device_module() is torch.cuda
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.device(3)
    assert str(torch.device("cpu")) == "cpu"
    assert "data" not in vars(torch.Tensor)


def test_data_moves_a_parameter_between_host_and_device() -> None:
    with EmulatedDevice():
        model = nn.Linear(2, 2)
        weight = model.weight
        weight.tag = "kept"  # type: ignore[attr-defined]
        weight.data = weight.to("cuda")
        assert model.weight is weight
        assert weight.is_cuda
        assert weight.requires_grad
        assert isinstance(weight, nn.Parameter)
        model.bias.data = model.bias.data.cuda()
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        weight.grad = None
        weight.data = weight.data.cpu()
        assert not weight.is_cuda
        assert type(weight) is nn.Parameter
        assert weight.tag == "kept"  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_default_devices_and_types_end_with_the_device() -> None:
    with EmulatedDevice():
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
        torch.set_default_device(None)
        torch.set_default_tensor_type(torch.FloatTensor)
        for kind in ("torch.cuda.HalfTensor", torch.cuda.HalfTensor):
            torch.set_default_tensor_type(kind)
            assert torch.zeros(2).is_cuda
            assert torch.zeros(2).dtype is torch.float16
    assert torch.zeros(2).dtype is torch.float32
    assert torch.zeros(2).device.type == "cpu"


def test_the_compilers_surface_is_there() -> None:
    with EmulatedDevice():
        torch.compiler.cudagraph_mark_step_begin()

        @torch.compile(mode="reduce-overhead")
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        assert double(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
        assert torch.amp.is_autocast_available("cuda")


# ---- nvidia-smi


@pytest.mark.skipif(sys.platform == "win32", reason="the command is a shell script")
def test_a_script_can_call_nvidia_smi() -> None:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,serial", "--format=csv,noheader,nounits"]
    with EmulatedDevice("A100"):
        line = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
        table = subprocess.run("nvidia-smi", capture_output=True, text=True, check=True, shell=True)
    assert line == "NVIDIA A100-SXM4-80GB, 81920, [N/A]\n"
    assert listed.stdout.startswith("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-")
    assert "NVIDIA A100-SXM4-80GB" in table.stdout


# ---- flash_attn's other modules


@MODES
def test_flash_attn_modules_compute_by_formula(shapes_only: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only) as device:
        import flash_attn.layers.rotary as rotary
        from flash_attn.losses.cross_entropy import CrossEntropyLoss
        from flash_attn.ops.rms_norm import rms_norm
        from flash_attn.ops.triton.layer_norm import RMSNorm, layer_norm_fn

        x = torch.randn(2, 5, 4, 8, device="cuda")
        angles = torch.rand(16, 4, device="cuda")
        turned = rotary.apply_rotary_emb(x, angles.cos(), angles.sin())
        assert turned.shape == x.shape
        bounds = torch.tensor([0, 3, 10], dtype=torch.int32, device="cuda")
        flat = x.flatten(0, 1)
        packed = rotary.apply_rotary_emb(flat, angles.cos(), angles.sin(), cu_seqlens=bounds)
        if not shapes_only:
            first = rotary.apply_rotary_emb(flat[None, :3], angles.cos(), angles.sin())[0]
            assert torch.allclose(packed[:3], first)
            assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-5)
        qkv = torch.randn(2, 5, 3, 4, 8, device="cuda")
        assert rotary.RotaryEmbedding(8, device="cuda")(qkv).shape == qkv.shape

        weight = torch.ones(8, device="cuda", requires_grad=True)
        normed, residual = layer_norm_fn(x, weight, None, residual=x, prenorm=True)
        assert normed.shape == residual.shape == x.shape
        norm = RMSNorm(8, device="cuda")
        if not shapes_only:
            assert torch.allclose(norm(x), nn.functional.rms_norm(x, (8,), eps=1e-5), atol=1e-6)
            assert torch.allclose(rms_norm(x, weight, 1e-5), norm(x), atol=1e-6)
        labels = torch.tensor([1, -100, 3], device="cuda")
        logits = torch.randn(3, 8, device="cuda", requires_grad=True)
        loss = CrossEntropyLoss()(logits, labels)
        loss.backward()
        if not shapes_only:
            assert torch.allclose(loss, nn.functional.cross_entropy(logits, labels), atol=1e-6)
    assert any("flash-attn" in note for note in device.notes)
