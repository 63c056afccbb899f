"""`torch.distributed` over NCCL while the device is active: gloo carries the bytes.

Only the class of the backend is replaced, so that all of torch's own code sees an NCCL group on
`cuda`, and takes the branches that it takes there.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.patches import Patches

NCCL_NOTE = "Collectives ran over gloo in place of NCCL, among the ranks of this process."
BUCKETS_NOTE = (
    "DistributedDataParallel rebuilt its buckets once, as it does after its first backward pass; "
    "the copies for that are no part of a step and are not counted."
)

_c10d: Any = torch._C._distributed_c10d
_TIMEOUT = timedelta(minutes=10)
"""NCCL's default."""


def patch_process_groups(
    patches: Patches, observers: Observers, note: Callable[[str], None]
) -> None:
    """Let programs that ask for NCCL run; `note` is told."""
    if not dist.is_available() or not dist.is_gloo_available():
        return
    c10d = dist.distributed_c10d
    # A Python object of a C++ class is one of this subclass for as long as somebody holds it.
    made: list[object] = []
    stand_in = _nccl_class(note, made)
    for module in (dist, c10d):
        patches.set(module, "ProcessGroupNCCL", stand_in)
        patches.set(module, "is_nccl_available", lambda: True)
    patches.set(c10d, "default_pg_nccl_timeout", _TIMEOUT)
    # Point-to-point batches are exchanged one by one.
    patches.set(dist.ProcessGroup, "_start_coalescing", lambda group, device: None)
    patches.set(dist.ProcessGroup, "_end_coalescing", lambda group, device: _done())

    def rebuild(original: Callable[..., bool], *args: Any) -> bool:
        with observers.uncounted_waits():
            rebuilt = original(*args)
        if rebuilt:
            note(BUCKETS_NOTE)
        return rebuilt

    patches.wrap(_c10d.Reducer, "_rebuild_buckets", rebuild)
    before = dist.is_initialized()

    def leave() -> None:
        # A group made inside is for tensors of this device; the next audit makes its own.
        if dist.is_initialized() and not before:
            dist.destroy_process_group()
        made.clear()

    patches.after_restore(leave)


def _done() -> Any:
    future: Any = torch.futures.Future()
    future.set_result([])
    return _c10d._create_work_from_future(future)


def _nccl_class(note: Callable[[str], None], made: list[object]) -> type:
    class Options:
        """Stands for `ProcessGroupNCCL.Options`; what is set is kept and has no effect."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()
            self._timeout = _TIMEOUT
            self.global_ranks_in_group: list[int] = []
            self.group_name = ""

    class ProcessGroupNCCL(dist.ProcessGroupGloo):
        """Stands for NCCL's backend."""

        def __init__(
            self, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None
        ) -> None:
            note(NCCL_NOTE)
            made.append(self)
            given = timeout or (Options() if options is None else options)._timeout
            super().__init__(store, rank, size, timeout=given)

    setattr(ProcessGroupNCCL, "Options", Options)  # noqa: B010 - the base class has its own
    return ProcessGroupNCCL
