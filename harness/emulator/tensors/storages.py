"""What `untyped_storage()` of a device tensor gives: torch's storage class over one allocation.

torch saves, loads, shares and resizes tensors through their storages. As a subclass of torch's own
class it goes through that code unchanged: one copy for each storage, the device in the tag.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.emulator.tensors.device_memory import Storage

_DEVICE = torch.device("cuda", 0)


class DeviceStorage(torch.UntypedStorage):
    """Bytes on the emulated device; the C++ storage underneath is empty and unused."""

    allocation: Storage
    host: torch.UntypedStorage | None
    """Where the bytes are on the host, or `None` where they are not known."""
    make: Callable[[torch.dtype, int, Sequence[int], Sequence[int], torch.Tensor | None], Any]
    """A device tensor over the allocation, of this dtype, offset, size, stride and host value."""

    @classmethod
    def of(cls, tensor: Any) -> DeviceStorage:
        """The storage of a device tensor: one object for all views, while it is held."""
        allocation = tensor.allocation
        known = None if allocation.storage is None else allocation.storage()
        host = None if tensor.host_value is None else tensor.host_value.untyped_storage()
        if known is None:
            known = cls(0)
            known.allocation = allocation
            allocation.storage = weakref.ref(known)
            make, run_op = type(tensor).make, tensor.run_op
            device = torch._C.TensorBase.device.__get__(tensor)
            known.make = lambda dtype, offset, size, stride, value: make(
                run_op, size, stride, offset, dtype, allocation, value, -1, device
            )
            known.host = None
        if host is not None:
            known.host = host
        return known

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # a constant, not a C getter
        return _DEVICE

    @property
    def is_cuda(self) -> bool:
        return True

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self.allocation.address

    def nbytes(self) -> int:
        return self.allocation.size_bytes

    size = __len__ = nbytes

    def resize_(self, size: int) -> DeviceStorage:
        """Take or free device memory; what comes new holds anything."""
        self.allocation.resize(size)
        if self.host is not None:
            self.host.resize_(size)
        return self

    def view(
        self, dtype: torch.dtype, offset: int, size: Sequence[int], stride: Sequence[int]
    ) -> Any:
        """A device tensor of this layout, in elements, over the storage."""
        value = None
        if self.host is not None and self.allocation.known:
            value = torch.empty(0, dtype=dtype, device="cpu")
            value.set_(self.host, offset, tuple(size), tuple(stride))
        return self.make(dtype, offset, tuple(size), tuple(stride), value)

    def _bytes(self) -> Any:
        return self.view(torch.uint8, 0, (self.nbytes(),), (1,))

    def cpu(self) -> torch.UntypedStorage:
        """One blocking copy to the host."""
        return self._bytes().cpu().untyped_storage()  # type: ignore[no-any-return]

    def cuda(self, device: Any = None, non_blocking: bool = False) -> DeviceStorage:
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        return self.cpu() if torch.device(device).type == "cpu" else self

    def clone(self) -> Any:
        return self._bytes().clone().untyped_storage()

    def copy_(self, source: Any, non_blocking: Any = None) -> Any:
        self._bytes().copy_(bytes_of(source), non_blocking=bool(non_blocking))
        return self

    def fill_(self, value: Any) -> DeviceStorage:
        self._bytes().fill_(value)
        return self

    def __getitem__(self, index: Any) -> Any:
        return self._bytes()[index].item()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStorage) and other.allocation is self.allocation

    def __hash__(self) -> int:
        return hash(self.allocation.address)

    def _write_file(self, *args: Any) -> None:
        """As the format before zip files has it: the whole size, known or not."""
        host = self.cpu()
        if host.nbytes() < self.nbytes():
            host = torch.zeros(self.nbytes(), dtype=torch.uint8, device="cpu").untyped_storage()
        host._write_file(*args)  # type: ignore[no-untyped-call]

    def _set_from_file(self, *args: Any) -> DeviceStorage:
        host = torch.empty(self.nbytes(), dtype=torch.uint8, device="cpu").untyped_storage()
        host._set_from_file(*args)  # type: ignore[no-untyped-call]
        self.copy_(host)
        return self


def bytes_of(storage: Any) -> Any:
    """The bytes of any storage as a flat tensor where it lives."""
    if isinstance(storage, DeviceStorage):
        return storage._bytes()
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
