"""`torch.compile` inside an audit: the function runs eagerly, and the report says so."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

NOTE = (
    "torch.compile was asked for; the step was audited eagerly, so waits that compilation removes "
    "are counted."
)


def patch_compile(patches: Patches, note: Callable[[str], None]) -> None:
    """Make `torch.compile` and `Module.compile` leave their subject as it is."""

    def eager(function: Callable[..., Any]) -> Callable[..., Any]:
        # A library compiles functions that the step may never call.
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            note(NOTE)
            return function(*args, **kwargs)

        return run

    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if model is None:
            return lambda function: compile_(function)
        if isinstance(model, torch.nn.Module):
            note(NOTE)
            return model
        return eager(model)

    def compile_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        note(NOTE)

    # CUDA graphs belong to compiled code: nothing is captured, so no step of it begins.
    patches.set(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    patches.set(torch, "compile", compile_)
    patches.set(torch.nn.Module, "compile", compile_module)
