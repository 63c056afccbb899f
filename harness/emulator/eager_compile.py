"""`torch.compile` inside an audit: the function runs eagerly, and the report says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.patches import Patches

NOTE = (
    "torch.compile was asked for; the step was audited eagerly, so waits that compilation removes "
    "are counted."
)


def patch_compile(patches: Patches, note: Callable[[str], None]) -> None:
    """Make `torch.compile` and `Module.compile` leave their subject as it is."""

    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        note(NOTE)
        return (lambda function: function) if model is None else model

    def compile_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        note(NOTE)

    patches.set(torch, "compile", compile_)
    patches.set(torch.nn.Module, "compile", compile_module)
