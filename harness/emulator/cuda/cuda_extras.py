"""Rarer parts of `torch.cuda`: old tensor types, memory history, `DataParallel`, CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.nn.parallel import comm

from harness.emulator.tensors.tensor import CUDA, EmulatedTensor
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

_OLD_TYPES = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor",
    "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor",
)  # fmt: skip
_NCCL_VERSION = (2, 27, 5)
"""What `torch.cuda.nccl.version()` answers: one that current CUDA wheels carry."""


def patch_cuda_extras(patches: Patches) -> None:
    """Answer what `patch_cuda` does not."""
    for name in _OLD_TYPES:
        patches.set(torch.cuda, name, _old_type(name))
    for name in ("graph", "make_graphed_callables"):
        patches.set(torch.cuda, name, _no_graphs)
    # A class, because annotations name it: `torch.cuda.CUDAGraph | None`.
    patches.set(torch.cuda, "CUDAGraph", type("CUDAGraph", (), {"__new__": _no_graphs}))
    patches.set(torch.cuda.memory, "_record_memory_history", lambda *args, **kwargs: None)
    patches.set(torch.cuda.memory, "_snapshot", lambda *args, **kwargs: {"segments": []})
    patches.set(torch.cuda.memory, "_dump_snapshot", lambda *args, **kwargs: None)
    patches.set(torch.cuda.nccl, "version", lambda: _NCCL_VERSION)
    patches.set(comm, "scatter", lambda tensor, *args, **kwargs: (tensor.to(CUDA),))
    patches.wrap(torch.nn.Module, "_apply", _apply)


def _apply(
    original: Callable[..., torch.nn.Module], module: torch.nn.Module, *args: Any, **kwargs: Any
) -> torch.nn.Module:
    """Move or convert a module.

    A parameter stays the same object, as on CUDA: optimizers made before `.cuda()` and tied weights
    depend on it. So its content is swapped, except where a graph or an RNN still points to it.
    """
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return original(module, *args, **kwargs)
    except RuntimeError as error:
        if "swap" not in str(error):
            raise
        torch.__future__.set_swap_module_params_on_conversion(False)
        return original(module, *args, **kwargs)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def _no_graphs(*args: Any, **kwargs: Any) -> NoReturn:
    raise WorkloadError(
        "CUDA graphs cannot be captured on an emulated GPU; audit the step without them, since a "
        "step that is captured may not wait anyway."
    )


def _old_type(name: str) -> type:
    """Stands for `torch.cuda.FloatTensor` and the like."""
    host_type = getattr(torch, name)

    class _IsOldType(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return type(instance) is EmulatedTensor and instance.dtype is host_type.dtype

    class OldType(metaclass=_IsOldType):
        dtype = host_type.dtype

        def __new__(cls, *data: Any) -> Any:
            if all(isinstance(size, int) for size in data):
                return torch.empty(data, dtype=cls.dtype, device=CUDA)
            (values,) = data
            return torch.tensor(values, dtype=cls.dtype, device=CUDA)

    OldType.__name__ = OldType.__qualname__ = name
    OldType.__module__ = "torch.cuda"
    return OldType
