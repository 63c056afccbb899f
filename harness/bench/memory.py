"""Highest memory in use in each phase, in a pass of its own that is never timed.

Three measures, each with its own `kind`, because they answer different questions:

- `cuda-allocator`: what torch's caching allocator has handed out on the device.
- `tensor-bytes`: bytes of all live tensor storages that an op of the step has touched, wherever
  they are. It does not see an op's inner workspace, nor tensors made on other threads.
- `rss`: resident memory of the whole process, libraries and freed but kept pages included.
"""

from __future__ import annotations

import ctypes
import re
import threading
import weakref
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.record.records import MemoryPeak

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from harness.record.records import Phase, Source
    from harness.workload import Workload

MemoryKind = Literal["cuda-allocator", "tensor-bytes", "rss", "modelled"]

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_RESET_PEAK_RSS = "5"
"""The value that makes Linux set the peak back to the present size (proc(5))."""


class MemoryProbe(Protocol):
    """Watches memory during one step."""

    @property
    def kind(self) -> MemoryKind:
        """What is counted."""
        ...

    def watching(self) -> AbstractContextManager[object]:
        """Active around a whole step."""
        ...

    def reset_peak(self) -> None:
        """Set the peak back to what is in use now."""
        ...

    def peak_bytes(self) -> int:
        """The highest since the last reset."""
        ...


def measure_peaks(
    workload: Workload, probes: Sequence[MemoryProbe], *, arm: str, source: Source
) -> tuple[MemoryPeak, ...]:
    """Run two steps and return the peaks of the second; the first makes what an arm keeps."""
    peaks: dict[tuple[MemoryKind, Phase], int] = {}
    phases: tuple[tuple[Phase, Any], ...] = (
        ("forward", workload.forward),
        ("backward", workload.backward),
        ("optimizer", workload.optimizer_step),
    )
    with ExitStack() as stack:
        for probe in probes:
            stack.enter_context(probe.watching())
        for _, run in phases:
            run()
        for phase, run in phases:
            for probe in probes:
                probe.reset_peak()
            run()
            for probe in probes:
                peaks[probe.kind, phase] = probe.peak_bytes()
    for probe in probes:
        peaks[probe.kind, "batch"] = max(peaks[probe.kind, phase] for phase, _ in phases)
    return tuple(
        MemoryPeak(arm=arm, phase=phase, kind=kind, peak_bytes=peak, source=source)
        for (kind, phase), peak in peaks.items()
    )


class CudaAllocatorPeak:
    """`torch.cuda.max_memory_allocated`; the emulated device answers the same calls."""

    def __init__(self, device: torch.device, kind: MemoryKind = "cuda-allocator") -> None:
        self._device = device
        self.kind: MemoryKind = kind

    @contextmanager
    def watching(self) -> Iterator[None]:
        torch.cuda.synchronize(self._device)
        yield

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)


class RssPeak:
    """Peak resident memory as Linux keeps it (`VmHWM`); see `available`."""

    kind: MemoryKind = "rss"

    @staticmethod
    def available() -> bool:
        """Whether the peak can be set back here; without that it only ever grows."""
        try:
            _CLEAR_REFS.write_text(_RESET_PEAK_RSS)
        except OSError:
            return False
        return True

    @contextmanager
    def watching(self) -> Iterator[None]:
        # Pages that an earlier arm freed would count for this one.
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        yield

    def reset_peak(self) -> None:
        _CLEAR_REFS.write_text(_RESET_PEAK_RSS)

    def peak_bytes(self) -> int:
        match = re.search(r"^VmHWM:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
        if match is None:
            raise OSError(f"{_STATUS} has no VmHWM")
        return int(match.group(1)) * 1024


class TensorBytesPeak(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """High-water mark of live tensor storage, from every op's inputs and outputs."""

    kind: MemoryKind = "tensor-bytes"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._live_bytes = 0
        self._peak_bytes = 0
        # A storage may die on another thread, or in a collection that starts under the lock.
        self._lock = threading.RLock()

    def watching(self) -> TensorBytesPeak:
        return self

    def reset_peak(self) -> None:
        self._peak_bytes = self._live_bytes

    def peak_bytes(self) -> int:
        return self._peak_bytes

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
                self._track(leaf.untyped_storage())
        return result

    def _track(self, storage: torch.UntypedStorage) -> None:
        key, num_bytes = id(storage), storage.nbytes()
        with self._lock:
            known = self._storages.get(key)
            if known is not None and known[1] == num_bytes:
                return
            self._live_bytes += num_bytes - (known[1] if known else 0)
            reference = weakref.ref(storage, lambda _: self._forget(key)) if not known else known[0]
            self._storages[key] = (reference, num_bytes)
            self._peak_bytes = max(self._peak_bytes, self._live_bytes)

    def _forget(self, key: int) -> None:
        with self._lock:
            _, num_bytes = self._storages.pop(key)
            self._live_bytes -= num_bytes
