"""Copies between device and host memory beside compute: one interface, two real engines.

A **mark** is a point in one queue of work: it is reached when everything queued before it is done.
Copies start after marks, compute waits for marks, and nobody waits for more than it must.
`CudaCopyEngine` queues on CUDA streams and its marks are events. `ThreadCopyEngine` serves models
on the CPU: worker threads copy memory while the calling thread computes, and its marks are futures.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Mark: TypeAlias = Any
"""Opaque to everyone but the engine family that made it; engines of one device share marks."""


class CopyEngine(Protocol):
    """Queues copies of one device. All tensors are dense, contiguous and of equal size in bytes.

    The caller keeps both tensors of a copy alive and unchanged until its mark is waited for.
    "Compute" is the stream that is current on the calling thread when a method is called.
    """

    def allocate_host(self, num_bytes: int) -> torch.Tensor:
        """A new `uint8[num_bytes]` in host memory that this engine copies from and to at speed."""
        ...

    def allocate_device(self, num_bytes: int) -> torch.Tensor:
        """A new `uint8[num_bytes]` on the device. Raises `torch.OutOfMemoryError`."""
        ...

    def offload(self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]) -> Mark:
        """Copy device to host, after all compute queued so far and after the marks `after`."""
        ...

    def reload(self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]) -> Mark:
        """Copy host to device after the marks `after`, and after nothing else."""
        ...

    def wait(self, mark: Mark, *reads: torch.Tensor) -> None:
        """Make compute wait for a mark; from then on it may read the tensors `reads`.

        Raises here, on the caller's thread, what the copy raised.
        """
        ...

    def compute_queue(self) -> Any:
        """Names the queue that compute is on now, for `record`."""
        ...

    def record(self, queue: Any = None, /) -> Mark:
        """A mark behind everything queued on `queue` so far; by default on compute's queue."""
        ...

    def free_device_bytes(self) -> int | None:
        """Device memory that nobody has taken, or `None` where it is not known."""
        ...

    def close(self) -> None:
        """Finish queued copies and end worker threads. Later copies still work, without overlap."""
        ...


class ThreadCopyEngine:
    """Copies host memory with worker threads, for models on the CPU.

    Compute runs on the calling thread, so whatever was called before is done: its marks are
    reached when they are made. The copies are the ones that run late.
    """

    def __init__(self, *, shared_lane: bool) -> None:
        """One worker for both directions with `shared_lane`, else one for each."""
        self._offload_lane: ThreadPoolExecutor | None = self._open_lane("offload")
        self._reload_lane: ThreadPoolExecutor | None = (
            self._offload_lane if shared_lane else self._open_lane("reload")
        )

    def allocate_host(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def allocate_device(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def offload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]
    ) -> Future[None]:
        return self._submit(self._offload_lane, source, target, after)

    def reload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]
    ) -> Future[None]:
        return self._submit(self._reload_lane, source, target, after)

    def wait(self, mark: Mark, *_reads: torch.Tensor) -> None:
        mark.result()

    def compute_queue(self) -> None:
        return None

    def record(self, _queue: Any = None, /) -> Future[None]:
        reached: Future[None] = Future()
        reached.set_result(None)
        return reached

    def free_device_bytes(self) -> None:
        return None

    def close(self) -> None:
        for lane in (self._offload_lane, self._reload_lane):
            if lane is not None:
                lane.shutdown(wait=True)
        self._offload_lane = self._reload_lane = None

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """One copy, on a worker's thread. Tests override it to delay or to fail."""
        # numpy, because it copies on this one thread and without the interpreter lock, where
        # `Tensor.copy_` would take the compute threads' cores as well.
        np.copyto(_bytes_of(target), _bytes_of(source))

    @staticmethod
    def _open_lane(direction: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"gapless-{direction}")

    def _submit(
        self,
        lane: ThreadPoolExecutor | None,
        source: torch.Tensor,
        target: torch.Tensor,
        after: Sequence[Mark],
    ) -> Future[None]:
        if lane is None:
            self._copy_after(source, target, after)
            return self.record()
        return lane.submit(self._copy_after, source, target, after)

    def _copy_after(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]
    ) -> None:
        # A mark is older than those who wait for it and a lane runs in order, so waits form no
        # cycle. A copy that failed concerns its own waiter; its memory is free all the same.
        for mark in after:
            mark.exception()
        self.copy(source, target)


class CudaCopyEngine:
    """Copies on CUDA streams of their own, ordered against compute by events only."""

    def __init__(self, device: torch.device, *, shared_lane: bool) -> None:
        """One stream for both directions with `shared_lane`, else one for each copy engine."""
        self._device = device
        self._offload_stream = _open_stream(device)
        self._reload_stream = self._offload_stream if shared_lane else _open_stream(device)

    def allocate_host(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def allocate_device(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)

    def offload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]
    ) -> torch.cuda.Event:
        return self._queue(self._offload_stream, source, target, [self.record(), *after])

    def reload(
        self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Mark]
    ) -> torch.cuda.Event:
        return self._queue(self._reload_stream, source, target, after)

    def wait(self, mark: Mark, *reads: torch.Tensor) -> None:
        # The stream that is current now, not the one that was when the engine was made: a step may
        # run on a side stream, and backward runs on the stream of its forward.
        stream = self.compute_queue()
        stream.wait_event(mark)
        for tensor in reads:
            # Free where the tensor was allocated on this stream, needed where it was not.
            tensor.record_stream(stream)

    def compute_queue(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device)

    def record(self, queue: torch.cuda.Stream | None = None, /) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        event.record(self.compute_queue() if queue is None else queue)
        return event

    def free_device_bytes(self) -> int:
        free_bytes, _ = torch.cuda.mem_get_info(self._device)
        return int(free_bytes)

    def close(self) -> None:
        self._offload_stream.synchronize()
        self._reload_stream.synchronize()

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Queue one copy on the stream that is current. Tests override it to delay."""
        target.copy_(source, non_blocking=True)

    def _queue(
        self,
        stream: torch.cuda.Stream,
        source: torch.Tensor,
        target: torch.Tensor,
        after: Sequence[Mark],
    ) -> torch.cuda.Event:
        for mark in after:
            stream.wait_event(mark)
        with torch.no_grad(), torch.cuda.stream(stream):
            self.copy(source, target)
        return self.record(stream)


def open_copy_engine(device: torch.device, *, shared_lane: bool) -> CopyEngine:
    """The engine for a device. Raises `UsageError` for a device that has none."""
    if device.type == "cpu":
        return ThreadCopyEngine(shared_lane=shared_lane)
    if device.type == "cuda":
        return CudaCopyEngine(device, shared_lane=shared_lane)
    raise UsageError(
        f"Checkpoint inputs on a {device.type} device cannot be offloaded; use a model on a CUDA "
        "device or on the CPU."
    )


def _open_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def _bytes_of(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The memory of a dense CPU tensor, as `uint8`, without a copy."""
    array: np.ndarray[Any, np.dtype[np.uint8]] = (
        tensor.detach().reshape(-1).view(torch.uint8).numpy()
    )
    return array
