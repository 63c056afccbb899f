"""The tensor that Python code takes for a CUDA tensor.

A wrapper subclass on PyTorch's PrivateUse1 device: autograd, hooks, `nn.Parameter` and the mixing
of devices work as for any device, while the data, where there is any, is a CPU tensor. All ops go
to the dispatcher of the device that made the tensor.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from harness.emulator.tensors.reading import Reading
from harness.emulator.tensors.storages import DeviceStorage
from harness.errors import WorkloadError
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.tensors.device_memory import Storage

CUDA = torch.device("cuda", 0)
_Base = torch.Tensor


def require_first(index: int | None) -> None:
    """Raise as CUDA does for the ordinal of a GPU that is not there: one is emulated."""
    if index is not None and index > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal (cuda:{index}; one GPU is emulated, cuda:0)"
        )


_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool})


def _reads_as(name: str, kind: SyncKind) -> Callable[..., Any]:
    """The method `name` of `torch.Tensor`, with its reads of the device known as `kind`."""
    original = getattr(_Base, name)

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with Reading(kind):
            return original(self, *args, **kwargs)

    method.__name__ = name
    return method


def _reads_in_index(index: Any) -> SyncKind | None:
    """Kind of read that indexing with `index` makes, judged by its 0-dim device tensors."""
    if type(index) is tuple:
        for part in index:
            kind = _reads_in_index(part)
            if kind is not None:
                return kind
        return None
    if type(index) is slice:
        bounds = (index.start, index.stop, index.step)
        return SyncKind.SLICE_BOUND_READ if any(type(b) is EmulatedTensor for b in bounds) else None
    if type(index) is EmulatedTensor and index.dim() == 0 and index.dtype in _INTEGERS:
        return SyncKind.SCALAR_TENSOR_INDEX
    return None


class EmulatedTensor(torch.Tensor):
    """A tensor on the emulated device; `device` and `is_cuda` answer as on CUDA."""

    host_value: torch.Tensor | None
    """The data on the host, or `None` where only the shape is known."""
    allocation: Storage
    layout_number: int
    """Number of its (shape, strides, offset, dtype) in the dispatcher's table, or -1."""
    run_op: Any
    """How ops on it run: bound method of the dispatcher that made it."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def make(
        dispatch: Any,
        size: Sequence[int],
        stride: Sequence[int],
        offset: int,
        dtype: torch.dtype,
        storage: Storage,
        value: torch.Tensor | None,
        layout: int,
        device: torch.device,
    ) -> EmulatedTensor:
        """A tensor of this layout over `storage`; strides and offset in elements."""
        tensor: EmulatedTensor = _wrap(
            EmulatedTensor, size, stride, offset, None, dtype, torch.strided, device
        )
        tensor.host_value = value
        tensor.allocation = storage
        tensor.layout_number = layout
        tensor.run_op = dispatch
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub lacks `func`
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an op where the dispatch mode is off: inside `repr`, or after the audit ended."""
        if len(types) > 1 and any(kind is not EmulatedTensor for kind in types):
            return NotImplemented
        for tensor in torch.utils._pytree.tree_leaves((args, kwargs)):
            if type(tensor) is EmulatedTensor:
                return tensor.run_op(func, args, kwargs or {})
        raise WorkloadError(
            f"{func} was called with no tensor of the emulated device among its arguments; "
            "this is an error of the emulator, please report the op."
        )

    @property
    def known_value(self) -> torch.Tensor | None:
        """The data on the host where it is what the device would hold, else `None`."""
        return self.host_value if self.allocation.known else None

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # a constant, not a C getter
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    @property
    def data(self) -> torch.Tensor:
        return _Base.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, new: torch.Tensor) -> None:
        if type(new) is not EmulatedTensor:
            become(self, new)
            return
        _Base.data.__set__(self, new)  # type: ignore[attr-defined]
        self.host_value, self.allocation, self.layout_number = (
            new.host_value,
            new.allocation,
            new.layout_number,
        )

    __bool__ = _reads_as("__bool__", SyncKind.BOOL_BRANCH)

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        with Reading(SyncKind.PRINT_TENSOR):
            text: str = torch._tensor_str._str(  # type: ignore[no-untyped-call]
                self, tensor_contents=tensor_contents
            )
        return text.replace("EmulatedTensor(", "tensor(", 1)

    item = _reads_as("item", SyncKind.SCALAR_READ)
    __float__ = _reads_as("__float__", SyncKind.SCALAR_READ)
    __int__ = _reads_as("__int__", SyncKind.SCALAR_READ)
    __index__ = _reads_as("__index__", SyncKind.SCALAR_READ)
    __complex__ = _reads_as("__complex__", SyncKind.SCALAR_READ)
    __contains__ = _reads_as("__contains__", SyncKind.BOOL_BRANCH)
    is_nonzero = _reads_as("is_nonzero", SyncKind.BOOL_BRANCH)
    cpu = _reads_as("cpu", SyncKind.D2H_COPY)

    def __format__(self, spec: str) -> str:
        if self.dim() == 0:
            return self.item().__format__(spec)  # type: ignore[no-any-return]
        return str.__format__(repr(self), spec)

    def __getitem__(self, index: Any) -> torch.Tensor:
        kind = _reads_in_index(index)
        if kind is None:
            return _Base.__getitem__(self, index)
        with Reading(kind):
            return _Base.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, bool | int | float | complex):
            # CUDA leaves the number on the host, as a 0-dim CPU tensor; for other devices torch
            # makes a device tensor of it, which would read as an assigned device tensor.
            value = torch.tensor(value, dtype=self.dtype)
        kind = _reads_in_index(index)
        if kind is None:
            _Base.__setitem__(self, index, value)
            return
        with Reading(kind):
            _Base.__setitem__(self, index, value)

    def tolist(self) -> Any:
        """One blocking copy to the host, whatever the length."""
        if self.dim() == 0:
            return self.item()
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            self._refuse_numpy()
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_numpy()

    def _refuse_numpy(self) -> NoReturn:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def get_device(self) -> int:
        return 0

    def untyped_storage(self) -> DeviceStorage:
        return DeviceStorage.of(self)

    def _typed_storage(self) -> torch.TypedStorage:
        return torch.TypedStorage(  # type: ignore[no-untyped-call]
            wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True
        )

    def share_memory_(self) -> EmulatedTensor:
        return self  # device memory is shared as it is

    def is_shared(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return self.allocation.address + int(self.storage_offset()) * self.element_size()

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> torch.Tensor:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            return str(_Base.type(torch.empty(0, dtype=self.dtype))).replace(
                "torch.", "torch.cuda."
            )
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype.rpartition(".")[2]).dtype
        return self.to(getattr(dtype, "dtype", dtype), non_blocking=non_blocking)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        with torch.no_grad():
            copied = self.detach().clone()
        copied.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)  # type: ignore[no-untyped-call]
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self, torch.nn.Parameter):
            return torch._utils._rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        layout = self._typed_storage(), self.storage_offset(), tuple(self.size()), self.stride()
        return torch._utils._rebuild_tensor_v2, (*layout, self.requires_grad, OrderedDict())


_OWN = frozenset({"host_value", "allocation", "layout_number", "run_op", "_is_param"})


def become(tensor: torch.Tensor, new: torch.Tensor) -> None:
    """`tensor.data = new` across devices: the same object, its content and kind swapped."""
    with torch.no_grad():
        fresh = new.detach()
    if isinstance(tensor, torch.nn.Parameter):
        fresh = torch.nn.Parameter(fresh, tensor.requires_grad)
    else:
        fresh.requires_grad_(tensor.requires_grad)
    vars(fresh).update({name: v for name, v in vars(tensor).items() if name not in _OWN})
    torch.utils.swap_tensors(tensor, fresh)  # type: ignore[no-untyped-call]


def storage_number(tensor: torch.Tensor) -> int | None:
    """Number of the storage, as in `Access.storage`; `None` for a host tensor."""
    return tensor.allocation.number if type(tensor) is EmulatedTensor else None


_wrap = torch.Tensor._make_wrapper_subclass
