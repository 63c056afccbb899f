"""The device is called `cuda` wherever a program can ask, whatever torch calls it inside.

Device tensors answer by themselves. This is for what torch makes in C++: tensors of other kinds
that hold device tensors, such as a DTensor, and devices named by a number alone.
"""

from __future__ import annotations

import copyreg
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import canonicalize_device

from harness.emulator.tensors.tensor import CUDA, EmulatedTensor, become, require_first

if TYPE_CHECKING:
    from harness.emulator.tensors.patches import Patches


def patch_device_names(patches: Patches, name: str) -> None:
    """Let tensors and devices that torch calls `name` say `cuda`."""
    _patch_attributes(patches, name)
    real = torch.device
    patches.set(torch, "device", _device_class(real))
    patches.set(torch._C, "_get_accelerator", lambda check=False: real("cuda"))
    torch.get_device_module.cache_clear()
    patches.after_restore(torch.get_device_module.cache_clear)
    # Pickle finds a class by its name, which stands for another one now.
    copyreg.pickle(real, lambda device: (canonicalize_device, (str(device),)))
    patches.after_restore(partial(copyreg.dispatch_table.pop, real))


def _patch_attributes(patches: Patches, name: str) -> None:
    plain: Any = torch._C.TensorBase
    device_of, is_cuda, data = plain.device, plain.is_cuda, plain.data

    def device(tensor: torch.Tensor) -> torch.device:
        found: torch.device = device_of.__get__(tensor)
        return CUDA if found.type == name else found

    def on_device(tensor: torch.Tensor) -> bool:
        return bool(is_cuda.__get__(tensor) or device_of.__get__(tensor).type == name)

    def set_data(tensor: torch.Tensor, new: torch.Tensor) -> None:
        if type(new) is EmulatedTensor and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            become(tensor, new)
        else:
            data.__set__(tensor, new)

    patches.set(torch.Tensor, "device", property(device))
    patches.set(torch.Tensor, "is_cuda", property(on_device))
    patches.set(torch.Tensor, "data", property(data.__get__, set_data))


def _device_class(real: type) -> type:
    class IsDevice(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __eq__(cls, other: object) -> bool:
            return other is real or other is cls

        def __hash__(cls) -> int:
            return hash(real)

    class device(metaclass=IsDevice):  # noqa: N801 - torch's own name
        """Makes real devices; a number alone is the emulated GPU's."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is int:
                require_first(args[0])
                return real("cuda", args[0])
            return real(*args, **kwargs)

    device.__module__, device.__qualname__ = "torch", "device"
    return device
