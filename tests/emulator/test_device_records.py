"""What the emulated device keeps count of: memory, streams, ops, copies, pinned storages."""

from __future__ import annotations

import copy
import gc
import io
import threading

import torch
from torch import nn

from harness.clock.gpus import find_gpu, gpu_names
from harness.emulator.device import EmulatedDevice
from harness.emulator.tensors.tensor import EmulatedTensor
from tests.emulator.test_device import Recorder, surroundings


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
