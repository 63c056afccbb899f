"""Modes of torch that audited code enters and does not leave end with the device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def modes_kept() -> Iterator[None]:
    """Dispatch modes, function modes and whether gradients are recorded, afterwards as before.

    Enter it innermost: a mode left on top would be taken for the one below it.
    """
    before = len(_get_current_dispatch_mode_stack()), len(_function_modes())
    records = torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(records)
        for mode in reversed(_get_current_dispatch_mode_stack()[before[0] :]):
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for call_mode in reversed(_function_modes()[before[1] :]):
            call_mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _function_modes() -> list[torch.overrides.TorchFunctionMode]:
    # The default device is one, too, and has a place of its own.
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [mode for mode in modes if not isinstance(mode, DeviceContext)]
