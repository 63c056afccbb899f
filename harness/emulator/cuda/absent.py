"""What a torch without CUDA lacks beside `torch.cuda`: NCCL, and CUPTI for the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

NCCL_NOTE = "Collectives ran over gloo in place of NCCL, among the ranks of this process."
PROFILER_NOTE = "The profiler inside the step saw host activity only: there is no GPU to trace."


def patch_absent(patches: Patches, note: Callable[[str], None]) -> None:
    """Let programs that ask for NCCL or a CUDA trace run; `note` is told."""

    def init(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        backend = args[0] if args else kwargs.get("backend")
        kwargs.pop("device_id", None)
        if backend is None or "nccl" in str(backend):
            note(NCCL_NOTE)
            args = args[1:]
            kwargs["backend"] = "gloo"
        return original(*args, **kwargs)

    def profile(original: Callable[..., None], self: Any, **kwargs: Any) -> None:
        asked = kwargs.get("activities")
        if asked is None or ProfilerActivity.CUDA in asked:
            note(PROFILER_NOTE)
            kwargs["activities"] = [ProfilerActivity.CPU]
        original(self, **kwargs)

    patches.wrap(profiler._KinetoProfile, "__init__", profile)
    if torch.distributed.is_available() and not torch.distributed.is_nccl_available():
        for module in (torch.distributed, torch.distributed.distributed_c10d):
            patches.wrap(module, "init_process_group", init)
            patches.set(module, "is_nccl_available", lambda: True)
