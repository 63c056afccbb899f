"""What a machine without a GPU lacks beside `torch.cuda`: NCCL, and CUPTI for the profiler."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

NCCL_NOTE = "Collectives ran over gloo in place of NCCL, among the ranks of this process."
PROFILER_NOTE = "The profiler inside the step saw host activity only: there is no GPU to trace."

_OF_A_GPU = ("device_id", "pg_options")
"""Arguments of a process group that speak of the GPU under NCCL, or of NCCL itself."""


def patch_absent(patches: Patches, note: Callable[[str], None]) -> None:
    """Let programs that ask for NCCL or a CUDA trace run; `note` is told."""

    def profile(original: Callable[..., None], self: Any, **kwargs: Any) -> None:
        asked = kwargs.get("activities")
        if asked is None or ProfilerActivity.CUDA in asked:
            note(PROFILER_NOTE)
            kwargs["activities"] = [ProfilerActivity.CPU]
        original(self, **kwargs)

    patches.wrap(profiler._KinetoProfile, "__init__", profile)
    if torch.distributed.is_available():
        _patch_collectives(patches, note)


def _patch_collectives(patches: Patches, note: Callable[[str], None]) -> None:
    """Gloo in the place of NCCL, also in a CUDA build: NCCL starts only on real GPUs."""
    from torch.distributed import device_mesh, distributed_c10d

    def over_gloo(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = signature(original).bind(*args, **kwargs).arguments
        backend = given.get("backend")
        # A group without a backend takes that of the first, which is gloo by now.
        if "nccl" in str(backend) or (
            backend is None and "ranks" not in signature(original).parameters
        ):
            note(NCCL_NOTE)
            given["backend"] = "gloo"
        for name in _OF_A_GPU:
            given.pop(name, None)
        return original(**given)

    # The device mesh holds names of its own.
    for module in (torch.distributed, distributed_c10d, device_mesh):
        for name in ("init_process_group", "new_group"):
            patches.wrap(module, name, over_gloo)
    for module in (torch.distributed, distributed_c10d):
        patches.set(module, "is_nccl_available", lambda: True)
