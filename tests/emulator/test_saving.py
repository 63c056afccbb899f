"""Saving, loading and resizing what lies on the emulated device, as on CUDA."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

from harness.emulator.device import EmulatedDevice
from tests.emulator.test_cuda_surface import MODES


def saved(value: Any, **options: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


@MODES
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_storage_is_saved_once_and_comes_back_shared(shapes_only: bool, zipped: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only):
        base = torch.arange(6.0, device="cuda")
        rows = base.view(2, 3)
        state = {"rows": rows, "row": rows[1], "base": base, "transposed": rows.t()}
        loaded = torch.load(saved(state, _use_new_zipfile_serialization=zipped))
        assert all(tensor.is_cuda for tensor in loaded.values())
        assert loaded["transposed"].stride() == (1, 3)
        assert loaded["row"].tolist() == [3.0, 4.0, 5.0]
        loaded["rows"][1, 0] = 9.0
        assert loaded["row"][0].item() == 9.0
        assert base[3].item() == 3.0


@MODES
@pytest.mark.parametrize(
    "place",
    [
        None, "cuda", "cuda:0", torch.device("cuda", 0), {"cuda:0": "cuda:0"},
        lambda storage, location: storage.cuda(0), lambda storage, location: None,
    ],
)  # fmt: skip
def test_map_location_leads_back_to_the_device(shapes_only: bool, place: Any) -> None:
    with EmulatedDevice(shapes_only=shapes_only):
        buffer = saved({"x": torch.full((4,), 3.0, device="cuda")})
        for weights_only in (True, False):
            buffer.seek(0)
            x = torch.load(buffer, map_location=place, weights_only=weights_only)["x"]
            assert x.is_cuda
            assert x.tolist() == [3.0] * 4


@MODES
@pytest.mark.parametrize("place", ["cpu", {"cuda:0": "cpu"}, lambda storage, location: storage])
def test_map_location_leads_to_the_host(shapes_only: bool, place: Any) -> None:
    with EmulatedDevice(shapes_only=shapes_only):
        x = torch.load(saved({"x": torch.ones(4, device="cuda")}), map_location=place)["x"]
        assert not x.is_cuda
        assert x.tolist() == [1.0] * 4


@MODES
def test_a_module_and_its_optimizer_survive_a_round_trip(shapes_only: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only):
        model = nn.Linear(64, 64).cuda()
        model.bias.requires_grad_(False)
        optimizer = torch.optim.AdamW([model.weight])
        model(torch.ones(2, 64, device="cuda")).sum().backward()
        optimizer.step()
        again = torch.load(saved(model), weights_only=False)
        assert isinstance(again.weight, nn.Parameter)
        assert again.weight.is_cuda
        assert again.weight.requires_grad
        assert not again.bias.requires_grad
        state = torch.load(saved(optimizer.state_dict()))
        optimizer.load_state_dict(state)
        host = torch.load(saved(model.state_dict()), map_location="cpu")
        model.load_state_dict(host)


def test_a_tag_without_a_gpu_says_what_torch_says() -> None:
    with EmulatedDevice():
        buffer = saved(torch.ones(2, device="cuda"))
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location"):
            torch.load(buffer)
        buffer.seek(0)
    assert torch.load(buffer, map_location="cpu").tolist() == [1.0, 1.0]


@MODES
def test_storages_have_their_exact_size_and_can_be_resized(shapes_only: bool) -> None:
    with EmulatedDevice(shapes_only=shapes_only) as device:
        x = torch.ones(300, device="cuda")
        storage = x.untyped_storage()
        assert isinstance(storage, torch.UntypedStorage)
        assert storage.nbytes() == storage.size() == len(storage) == 1200
        assert storage.device == torch.device("cuda", 0)
        assert x.view(3, 100).untyped_storage() == storage
        assert x[100:].untyped_storage().data_ptr() == storage.data_ptr()
        assert x._typed_storage()._size() == 300
        live = device.memory.live_bytes
        storage.resize_(0)
        assert x.untyped_storage().size() == 0
        assert device.memory.live_bytes < live
        storage.resize_(1200)
        assert device.memory.live_bytes == live
        x.fill_(2.0)
        assert x.sum().item() in (600.0, 1.0)  # what is unknown on shapes reads as 1
