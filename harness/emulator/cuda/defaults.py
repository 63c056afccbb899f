"""Where and of which dtype tensors are made by default; a program's choice ends with the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches


def patch_defaults(patches: Patches) -> None:
    """Let the default tensor type be one of the device's, and put the defaults back afterwards."""
    device, dtype = _device(), torch.get_default_dtype()

    def put_back() -> None:
        torch.set_default_dtype(dtype)
        if _device() != device:
            torch.set_default_device(device)

    patches.after_restore(put_back)
    patches.wrap(torch, "set_default_tensor_type", _set_type)


def _device() -> torch.device | None:
    """The default device where one is set; asking torch for it would make a tensor there."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _set_type(original: Callable[[Any], None], t: Any) -> None:
    name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
    room, _, kind = name.rpartition(".")
    if room == "torch.cuda":
        torch.set_default_dtype(getattr(torch, kind).dtype)
        torch.set_default_device("cuda")
    else:
        device = _device()
        if device is not None and device.type == "cuda":
            torch.set_default_device(None)
        original(t)
