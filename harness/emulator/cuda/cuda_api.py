"""What `torch.cuda`, `torch.accelerator` and device arguments answer while the device is active."""

from __future__ import annotations

import contextlib
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _foreach_utils
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._pytree import tree_map_only

from harness.emulator.dispatch.copies import is_pinned, mark_pinned
from harness.emulator.tensors.reading import Reading
from harness.emulator.tensors.tensor import EmulatedTensor, require_first
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.clock.gpus import GpuSpec
    from harness.emulator.cuda.cuda_streams import StreamApi
    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.device_memory import MemoryBook
    from harness.emulator.tensors.patches import Patches


def patch_cuda(
    patches: Patches,
    gpu: GpuSpec,
    observers: Observers,
    memory: MemoryBook,
    streams: StreamApi,
) -> None:
    """Make `torch.cuda` and `torch.accelerator` speak of the emulated GPU."""
    answers = {
        **_device_answers(gpu),
        **_memory_answers(gpu, memory, observers),
        **_stream_answers(streams, observers),
        **_random_answers(),
    }
    for name, answer in answers.items():
        patches.set(torch.cuda, name, answer)
        for part in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
            if hasattr(part, name):
                patches.set(part, name, answer)
    _patch_accelerator(patches, gpu, answers)
    patches.set(EmulatedTensor, "record_stream", lambda t, stream: streams.record_tensor(t, stream))
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch, "Stream", streams.stream_class)
    patches.set(torch, "Event", streams.event_class)
    patches.set(torch.version, "cuda", torch.version.cuda or "12.8")


def patch_tensors(patches: Patches, device: torch.device) -> None:
    """Let device arguments that say `cuda` mean the emulated device.

    Most factories need nothing: their op reaches the dispatch mode with the device they were given.
    The few here look up the CUDA driver before they dispatch.
    """

    def ours(value: Any) -> Any:
        if type(value) is int:
            require_first(value)
            return device
        if not isinstance(value, str | torch.device) or torch.device(value).type != "cuda":
            return value
        require_first(torch.device(value).index)
        return device

    def first_or_named(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (ours(args[0]), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = ours(kwargs["device"])
        return original(self, *args, **kwargs)

    def default_device_is_cuda() -> bool:
        for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
            if isinstance(mode, DeviceContext):
                return mode.device.type == "cuda"
        return False

    def named(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = ours(kwargs["device"])
        elif default_device_is_cuda():
            kwargs["device"] = device
        return original(*args, **kwargs)

    def cuda(self: torch.Tensor, dev: Any = None, non_blocking: bool = False, **kw: Any) -> Any:
        ours(kw.pop("device", dev))
        return to(self, device, non_blocking=non_blocking, **kw)

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        return self if is_pinned(self) else mark_pinned(self.detach().clone())

    # This list of constructors is made at its first use: it must hold the real ones.
    _device_constructors()
    to = torch.Tensor.to
    patches.wrap(torch.Tensor, "to", first_or_named)
    patches.set(torch.Tensor, "cuda", cuda)
    patches.set(torch.Tensor, "pin_memory", pin_memory)
    patches.set(torch.Tensor, "is_pinned", lambda self, device=None: is_pinned(self))
    patches.wrap(torch.Tensor, "new_tensor", named)
    for name in ("as_tensor", "asarray"):
        patches.wrap(torch, name, named)
    patches.wrap(torch, "tensor", lambda original, data, **kw: named(original, _read(data), **kw))
    patches.set(torch, "Generator", _generator_class())
    patches.wrap(torch, "load", _load)
    _patch_foreach(patches)
    # The parser asks for CUDA to be initialised before an op with a `cuda` device is dispatched,
    # once per process only: a real device is therefore initialised when this one is left.
    asked: list[None] = []

    def initialise_real() -> None:
        if asked and torch.cuda.is_available():
            torch.cuda.init()  # type: ignore[no-untyped-call]

    patches.set(torch.cuda, "_lazy_init", lambda: asked.append(None))
    patches.after_restore(initialise_real)


def _patch_foreach(patches: Patches) -> None:
    """Optimizers and gradient clipping choose their foreach way by default, as on CUDA."""
    supported: list[Any]
    for supported in (
        optimizer._foreach_supported_types,
        _foreach_utils._foreach_supported_types,
    ):
        supported.append(EmulatedTensor)
        patches.after_restore(partial(supported.remove, EmulatedTensor))


def _read(data: Any) -> Any:
    """Nested lists as `torch.tensor` takes them, each device scalar in them read one by one."""
    if type(data) is EmulatedTensor and data.dim() == 0:
        return data.item()
    if type(data) not in (list, tuple):
        return data
    if any(isinstance(item, EmulatedTensor | list | tuple) for item in data):
        with Reading(SyncKind.IMPLICIT_SCALAR_ARG):
            return [_read(item) for item in data]
    return data


def _load(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`torch.load` to the device: read on the host, then copied tensor by tensor."""
    place = args[1] if len(args) > 1 else kwargs.get("map_location")
    if not isinstance(place, str | torch.device) or torch.device(place).type != "cuda":
        return original(*args, **kwargs)
    kwargs["map_location"] = "cpu"
    loaded = original(args[0], **kwargs)
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to("cuda"), loaded)


def _generator_class() -> type:
    real = torch.Generator

    class _IsGenerator(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Generator(metaclass=_IsGenerator):
        """Any generator is a CPU generator underneath: the values are drawn on the host."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return real("cpu")

    return Generator


def _device_answers(gpu: GpuSpec) -> dict[str, Any]:
    properties = SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.num_multiprocessors,
        is_integrated=gpu.unified_memory,
        is_multi_gpu_board=False,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
    )

    class device(contextlib.nullcontext):  # type: ignore[type-arg]  # noqa: N801 - torch's own name
        """Stands for `torch.cuda.device`: there is one device."""

        def __init__(self, device: Any = None) -> None:
            super().__init__()

    major, minor = gpu.capability
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: require_first(torch.device(device).index),
        "device": device,
        "device_of": device,
        "get_device_name": lambda device=None: gpu.name,
        "get_device_capability": lambda device=None: gpu.capability,
        "get_device_properties": lambda device=None: properties,
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "is_bf16_supported": lambda including_emulation=True: major >= 8 or including_emulation,
        "is_tf32_supported": lambda: major >= 8,
        "can_device_access_peer": lambda device, peer: False,
        "is_current_stream_capturing": lambda: False,
        "ipc_collect": lambda: None,
        "utilization": lambda device=None: 0,
        "set_sync_debug_mode": lambda mode: None,
        "get_sync_debug_mode": lambda: 0,
        "nvtx": SimpleNamespace(
            range_push=lambda message: 0,
            range_pop=lambda: 0,
            range=lambda message, *args, **kwargs: contextlib.nullcontext(),
            mark=lambda message: None,
        ),
    }


def _memory_answers(gpu: GpuSpec, memory: MemoryBook, observers: Observers) -> dict[str, Any]:
    def live(device: Any = None) -> int:
        return memory.live_bytes

    def peak(device: Any = None) -> int:
        return memory.peak_bytes

    def reset(device: Any = None) -> None:
        memory.reset_peak()

    def statistics(device: Any = None) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": memory.live_bytes,
            "allocated_bytes.all.peak": memory.peak_bytes,
            "reserved_bytes.all.current": memory.live_bytes,
            "reserved_bytes.all.peak": memory.peak_bytes,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    return {
        "memory_allocated": live,
        "memory_reserved": live,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_stats": statistics,
        "memory_summary": lambda device=None, abbreviated=False: (
            f"emulated {gpu.name}: {memory.live_bytes} bytes live, {memory.peak_bytes} at most"
        ),
        "mem_get_info": lambda device=None: (
            max(gpu.memory_bytes - memory.live_bytes, 0),
            gpu.memory_bytes,
        ),
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        # Cached blocks are freed with cudaFree, which waits for the whole device.
        "empty_cache": lambda: observers.tell_api_wait("cudaFree", SyncKind.EMPTY_CACHE),
    }


def _stream_answers(streams: StreamApi, observers: Observers) -> dict[str, Any]:
    @contextlib.contextmanager
    def stream(chosen: Any) -> Iterator[None]:
        with contextlib.nullcontext() if chosen is None else chosen:
            yield

    def synchronize(device: Any = None) -> None:
        observers.tell_stream_action("synchronize_device", streams.book.current)
        observers.tell_api_wait("cudaDeviceSynchronize", SyncKind.EXPLICIT_SYNCHRONIZE)

    return {
        "Stream": streams.stream_class,
        "Event": streams.event_class,
        "stream": stream,
        "current_stream": streams.current,
        "default_stream": streams.default,
        "set_stream": streams.set_current,
        "synchronize": synchronize,
    }


def _random_answers() -> dict[str, Any]:
    # CUDA keeps its Philox state on the host; reading or setting it does not wait.
    return {
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "default_generators": (torch.default_generator,),
    }


def _patch_accelerator(patches: Patches, gpu: GpuSpec, answers: dict[str, Any]) -> None:
    accelerator = torch.accelerator
    for name, answer in {
        "is_available": lambda: True,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "device_count": lambda: 1,
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": lambda device: None,
        "set_device_idx": lambda device: None,
        "current_stream": answers["current_stream"],
        "set_stream": answers["set_stream"],
        "synchronize": answers["synchronize"],
        "get_device_capability": lambda device=None: {"supported_dtypes": set()},
        "empty_cache": answers["empty_cache"],
        "memory_allocated": answers["memory_allocated"],
        "max_memory_allocated": answers["max_memory_allocated"],
        "memory_reserved": answers["memory_reserved"],
        "max_memory_reserved": answers["max_memory_reserved"],
        "reset_peak_memory_stats": answers["reset_peak_memory_stats"],
        "memory_stats": answers["memory_stats"],
        "get_memory_info": answers["mem_get_info"],
    }.items():
        patches.set(accelerator, name, answer)
