"""The accelerator that does not exist: everything above put together, on for a `with` block."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from harness.clock.gpus import GpuSpec, find_gpu
from harness.emulator.cuda.absent import patch_absent
from harness.emulator.cuda.autocast import patch_autocast
from harness.emulator.cuda.backward_errors import patch_backward
from harness.emulator.cuda.checkpoints import patch_checkpoints
from harness.emulator.cuda.cuda_api import patch_cuda, patch_tensors
from harness.emulator.cuda.cuda_extras import patch_cuda_extras
from harness.emulator.cuda.cuda_streams import StreamApi
from harness.emulator.cuda.defaults import patch_defaults
from harness.emulator.cuda.device_names import patch_device_names
from harness.emulator.cuda.eager_compile import patch_compile
from harness.emulator.cuda.flex_attention import patch_flex_attention
from harness.emulator.cuda.libraries import libraries_see_the_device
from harness.emulator.cuda.nvidia_smi import nvidia_smi
from harness.emulator.cuda.private_backend import emulated_device, set_available
from harness.emulator.cuda.process_groups import patch_process_groups
from harness.emulator.cuda.safe_interrupts import interrupts_at_safe_places
from harness.emulator.cuda.stand_ins import stand_ins
from harness.emulator.cuda.torch_modes import modes_kept
from harness.emulator.dispatch.derivatives import patch_derivatives
from harness.emulator.dispatch.dispatcher import Dispatcher
from harness.emulator.dispatch.observers import Observers
from harness.emulator.dispatch.phases import PhaseTracker
from harness.emulator.kernels.attention import register_attention
from harness.emulator.rules.composites import patch_composites
from harness.emulator.tensors.choices import Choices
from harness.emulator.tensors.device_memory import MemoryBook
from harness.emulator.tensors.layouts import LayoutTable
from harness.emulator.tensors.patches import Patches
from harness.emulator.tensors.stream_book import StreamBook
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from harness.emulator.device_clock import DeviceClock
    from harness.emulator.tensors.capacity import ValuesLimit
    from harness.emulator.tensors.op_events import Observer


class EmulatedDevice:
    """Code inside `with EmulatedDevice(...)` believes it runs on one CUDA GPU.

    `shapes_only` keeps no data of large floating tensors; `values_limit` bounds the data of a
    device that keeps it. Enter it once: a second device at the same time, or the same one again,
    raises `UsageError`.
    """

    _active: EmulatedDevice | None = None

    def __init__(
        self,
        gpu: str = "H100",
        *,
        shapes_only: bool = False,
        values_limit: ValuesLimit | None = None,
        choices: Choices | None = None,
        clock: DeviceClock | None = None,
    ) -> None:
        self.gpu: GpuSpec = find_gpu(gpu)
        self.choices = choices or Choices()
        self.memory = MemoryBook(self.gpu.memory_bytes)
        self.streams = StreamBook()
        self.phases = PhaseTracker()
        self.layouts = LayoutTable()
        self.observers = Observers(self.layouts, self.streams, self.phases)
        self.dispatcher = Dispatcher(
            emulated_device(), self.memory, self.streams, self.layouts, self.observers,
            self.choices, shapes_only, values_limit,
        )  # fmt: skip
        self.clock = clock
        self.stream_api = StreamApi(self.observers, self.streams, clock)
        if clock is not None:
            self.dispatcher.pacer = clock.on_op
            self.observers.add(clock)
            clock.watch_memory(self.memory)
        self.notes: list[str] = []
        """What a reader must know, one sentence each: compile ran eagerly, ..."""
        self._patches = Patches()
        self._exits = contextlib.ExitStack()
        self._used = False

    @property
    def shapes_only(self) -> bool:
        """Whether large floating tensors have no data; it becomes so beyond `values_limit`."""
        return self.dispatcher.shapes_only

    def add_observer(self, observer: Observer) -> None:
        """Tell `observer` of each op (or wait) from now on."""
        self.observers.add(observer)

    def note(self, sentence: str) -> None:
        """Add a sentence for the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def __enter__(self) -> EmulatedDevice:
        if EmulatedDevice._active is not None or self._used:
            raise UsageError(
                "An emulated device is already active; audits do not nest: leave the outer "
                "`with` block first, and make a new one for each audit."
            )
        self._used = True
        EmulatedDevice._active = self
        try:
            self._install()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _install(self) -> None:
        set_available(True)
        patch_cuda(self._patches, self.gpu, self.observers, self.memory, self.stream_api)
        patch_cuda_extras(self._patches)
        patch_tensors(self._patches, self.dispatcher.device)
        patch_device_names(self._patches, self.dispatcher.device.type)
        patch_composites(self._patches)
        patch_derivatives(self._patches, self.observers)
        patch_autocast(self._patches)
        register_attention()
        patch_backward(self._patches)
        patch_absent(self._patches, self.note)
        patch_checkpoints(self._patches)
        patch_defaults(self._patches)
        patch_process_groups(self._patches, self.observers, self.note)
        patch_compile(self._patches, self.note)
        patch_flex_attention(self._patches, self.dispatcher, self.observers, self.note)
        self.phases.start(self._patches)
        # The modes are a thread's own; a prefetch thread of the step needs them as well.
        self._patches.wrap(threading.Thread, "_bootstrap_inner", self._run_thread)
        exits = self._exits
        exits.enter_context(interrupts_at_safe_places())
        exits.enter_context(stand_ins(self.note))
        exits.enter_context(libraries_see_the_device())
        exits.enter_context(nvidia_smi(self.gpu))
        # Backward on the caller's thread: exceptions in hooks reach the caller as they are, where
        # they would abort the process on a device thread, and the user's frames stay visible.
        exits.enter_context(torch.autograd.set_multithreading_enabled(False))
        exits.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        if "torch._dynamo" in sys.modules:
            exits.enter_context(torch.compiler.set_stance("force_eager"))
        exits.enter_context(self.dispatcher)
        exits.enter_context(modes_kept())

    def _run_thread(self, original: Callable[[threading.Thread], None], thread: Any) -> None:
        with torch.autograd.set_multithreading_enabled(False), self.dispatcher:
            original(thread)

    def _remove(self) -> None:
        try:
            self._exits.close()
        finally:
            self.phases.stop()
            self._patches.restore()
            self.observers.clear()
            self.dispatcher.pacer = None
            set_available(False)
            EmulatedDevice._active = None


def active_device() -> Any:
    """The device of the `with` block that is running, or `None`."""
    return EmulatedDevice._active
