"""`torch.save` and `torch.load` on the emulated device: by storage, each copied once.

torch's own code does it, with the storages of `storages`; only what would reach into the C++ part
of a storage is answered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.storages import DeviceStorage, bytes_of
from harness.emulator.tensors.tensor import CUDA, require_first

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.tensors.patches import Patches


def patch_checkpoints(patches: Patches) -> None:
    """Let storages move to the device, and tensors be built over them."""
    base = torch.UntypedStorage
    patches.set(base, "cuda", _cuda)
    patches.wrap(base, "to", _to)
    patches.wrap(torch._utils, "_rebuild_tensor", _rebuild)


def _cuda(
    self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False
) -> DeviceStorage:
    require_first(None if device is None else torch.device(device).index)
    return bytes_of(self).to(CUDA).untyped_storage()  # type: ignore[no-any-return]


def _to(
    original: Callable[..., Any], storage: torch.UntypedStorage, *, device: Any, **options: Any
) -> Any:
    if torch.device(device).type == "cuda":
        return _cuda(storage, device)
    return original(storage, device=device, **options)


def _rebuild(
    original: Callable[..., torch.Tensor],
    storage: Any,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """A tensor over a loaded storage.

    Of data that was not known one element was saved; a tensor over it repeats that.
    """
    dtype, untyped = storage.dtype, storage._untyped_storage
    reach = offset + 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    short = torch.Size(size).numel() > 0 and untyped.nbytes() < reach * dtype.itemsize
    if isinstance(untyped, DeviceStorage):
        if short:
            untyped.allocation.resize(reach * dtype.itemsize)
            untyped.allocation.known = False
        return untyped.view(dtype, offset, size, stride)  # type: ignore[no-any-return]
    if short:
        return torch.zeros((), dtype=dtype, device="cpu").expand(tuple(size))
    return original(storage, offset, size, stride)
