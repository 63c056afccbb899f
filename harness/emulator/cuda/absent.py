"""What a torch without CUDA lacks beside `torch.cuda`: CUPTI for the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

PROFILER_NOTE = "The profiler inside the step saw host activity only: there is no GPU to trace."


def patch_absent(patches: Patches, note: Callable[[str], None]) -> None:
    """Let programs that ask for a CUDA trace run; `note` is told."""

    def profile(original: Callable[..., None], self: Any, **kwargs: Any) -> None:
        asked = kwargs.get("activities")
        if asked is None or ProfilerActivity.CUDA in asked:
            note(PROFILER_NOTE)
            kwargs["activities"] = [ProfilerActivity.CPU]
        original(self, **kwargs)

    patches.wrap(profiler._KinetoProfile, "__init__", profile)
