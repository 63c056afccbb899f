"""Copies between host and device whose result nothing reads before it is freed.

A result is followed by its storage, so that views, `detach` and what autograd saves stand for it.
Any op on it counts as a read, and so does every way in which Python gets at the bytes of a host
tensor. What is still alive when the step ends may be wanted later, and is left alone.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensors.reading import current_reading
from harness.emulator.tensors.tensor import EmulatedTensor
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.audit.emulated.site_counts import SiteCount
    from harness.emulator.tensors.op_events import Copy, OpEvent
    from harness.emulator.tensors.patches import Patches
    from harness.emulator.tensors.stream_book import StreamAction

_PYTHON_READS = (
    "tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "__reduce_ex__", "__deepcopy__",
    "__repr__", "__format__", "untyped_storage", "share_memory_",
)  # fmt: skip
"""Methods of a host tensor that hand out its data without an op that a dispatch mode sees."""
_OF_THE_COPY = (None, SyncKind.D2H_COPY)


class UnreadCopies:
    """An observer that follows the results of copies which made the host wait."""

    wants_every_op = True

    def __init__(self) -> None:
        self._followed: dict[int, tuple[weakref.ref[Any], SiteCount]] = {}
        """By identity of the storage."""
        self._on_device: dict[int, int] = {}
        """Number of a device storage -> its identity."""
        self._storage_of = torch.Tensor.untyped_storage

    def start(self, patches: Patches) -> None:
        """Start to observe how Python reads host tensors."""
        for name in _PYTHON_READS:
            patches.wrap(torch.Tensor, name, self._read_by_python)

    def follow(self, copy: Copy, site: SiteCount) -> None:
        """Count the copy at its site as unread if its result is freed unread within the step."""
        storage = None if copy.made is None else copy.made()
        # A print or a read of one value copies by itself; there is no result to look after.
        if storage is None or current_reading() not in _OF_THE_COPY:
            return
        identity = id(storage)

        def gone(_: weakref.ref[Any]) -> None:
            if self._followed.pop(identity, None) is not None:
                site.unread += 1

        self._followed[identity] = (weakref.ref(storage, gone), site)
        if copy.direction == "h2d":
            self._on_device[storage.number] = identity

    def forget(self) -> None:
        """End a step: what is alive now may be read later."""
        self._followed.clear()
        self._on_device.clear()

    def host_read(self, tensor: torch.Tensor) -> None:
        """An op takes this host tensor."""
        if self._followed and tensor.layout is torch.strided:
            self._followed.pop(id(self._storage_of(tensor)), None)

    def on_event(self, event: OpEvent) -> None:
        """An op reads device tensors."""
        if self._on_device:
            for access in event.reads:
                identity = self._on_device.pop(access.storage, None)
                if identity is not None:
                    self._followed.pop(identity, None)

    def on_stream_action(self, action: StreamAction) -> None:
        """What a stream does reads no tensor."""

    def _read_by_python(self, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) is not EmulatedTensor:
            self.host_read(tensor)
        return original(tensor, *args, **kwargs)
