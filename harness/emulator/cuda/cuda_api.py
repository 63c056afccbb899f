"""What `torch.cuda`, `torch.accelerator` and device arguments answer while the device is active."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _foreach_utils
from torch.utils._device import DeviceContext, _device_constructors

from harness.emulator.cuda.gpu_answers import (
    accelerator_answers,
    device_answers,
    memory_answers,
    nvtx,
    random_answers,
)
from harness.emulator.dispatch.copies import is_pinned, mark_pinned
from harness.emulator.tensors.reading import Reading
from harness.emulator.tensors.tensor import EmulatedTensor, require_first
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable

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
        **device_answers(gpu),
        **memory_answers(gpu, memory, observers),
        **_stream_answers(streams, observers),
        **random_answers(),
    }
    for name, answer in answers.items():
        patches.set(torch.cuda, name, answer)
        for part in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
            if hasattr(part, name):
                patches.set(part, name, answer)
    patches.set(torch.cuda.nvtx, "_nvtx", nvtx)
    for name, answer in accelerator_answers(answers).items():
        for part in (torch.accelerator, torch.accelerator.memory):
            if hasattr(part, name):
                patches.set(part, name, answer)
    patches.set(EmulatedTensor, "record_stream", lambda t, stream: streams.record_tensor(t, stream))
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_available", lambda: True)
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch, "Stream", streams.stream_class)
    patches.set(torch, "Event", streams.event_class)
    patches.set(torch.version, "cuda", torch.version.cuda or "12.8")


def patch_tensors(patches: Patches, emulated: torch.device) -> None:
    """Let device arguments that say `cuda` mean the emulated device.

    Most factories need nothing: their op reaches the dispatch mode with the device they were given.
    The few here look up the CUDA driver before they dispatch.
    """

    def ours(value: Any) -> Any:
        if type(value) is int:
            require_first(value)
            return emulated
        if not isinstance(value, str | torch.device) or torch.device(value).type != "cuda":
            return value
        require_first(torch.device(value).index)
        return emulated

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
            kwargs["device"] = emulated
        return original(*args, **kwargs)

    def cuda(
        self: torch.Tensor, device: Any = None, non_blocking: bool = False, **options: Any
    ) -> Any:
        ours(device)
        return to(self, emulated, non_blocking=non_blocking, **options)

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


def _stream_answers(streams: StreamApi, observers: Observers) -> dict[str, Any]:
    class StreamContext:
        """Stands for `torch.cuda.StreamContext`."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.stream.__enter__()

        def __exit__(self, *error: object) -> None:
            if self.stream is not None:
                self.stream.__exit__(*error)

    def synchronize(device: Any = None) -> None:
        observers.tell_stream_action("synchronize_device", streams.book.current)
        observers.tell_api_wait("cudaDeviceSynchronize", SyncKind.EXPLICIT_SYNCHRONIZE)

    return {
        "Stream": streams.stream_class,
        "Event": streams.event_class,
        "StreamContext": StreamContext,
        "stream": lambda stream: StreamContext(stream),
        "current_stream": streams.current,
        "default_stream": streams.default,
        "set_stream": streams.set_current,
        "synchronize": synchronize,
    }
