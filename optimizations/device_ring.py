"""The few device buffers into which offloaded checkpoint inputs come back.

A slot belongs to one stored input from the start of its reload until the graph that reads it is
gone. Nothing is assumed about the order of backward: autograd frees what a layer saved as soon as
the layer's backward has been queued, and the death of the stored input is what frees the slot.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from optimizations.copy_engine import CopyEngine, Mark


@dataclass(eq=False)
class Slot:
    """One device buffer, `uint8[capacity]`."""

    memory: torch.Tensor
    writable: Mark
    """Reached when the last reader is done; the next copy into the slot starts after it."""
    owner: Callable[[], Any]
    """A weak reference to the stored input that the slot serves."""
    loaded: Mark | None = None
    """The copy into the slot."""
    reader_queue: Any = None
    """Where the owner's compute was queued when it asked for the data."""
    claimed: bool = False
    """The owner was given the data; before that the slot holds a prefetch and can be taken back."""


class DeviceRing:
    """Up to `num_slots` buffers, each grown to the largest input; used in turn.

    With one slot a reload waits for all compute of the layer before. With two, it waits only for
    the layer before that one.
    """

    def __init__(self, engine: CopyEngine, num_slots: int, min_free_bytes: int) -> None:
        self._engine = engine
        self._num_slots = num_slots
        self._limit = num_slots
        self._min_free_bytes = min_free_bytes
        self._owned: list[Slot] = []
        self._free: deque[Slot] = deque()
        self.shortage: str | None = None
        """Why there is only one buffer, where more were asked for."""

    @property
    def num_bytes(self) -> int:
        """Device memory held."""
        return sum(slot.memory.numel() for slot in (*self._owned, *self._free))

    def reclaim(self) -> None:
        """Free the slots whose owners are gone: what reads them has been queued by now."""
        for slot in [slot for slot in self._owned if slot.owner() is None]:
            self._owned.remove(slot)
            if len(self._owned) + len(self._free) >= self._limit:
                self._settle(slot)
                continue
            slot.writable = self._engine.record(slot.reader_queue)
            self._free.append(slot)

    def acquire(self, owner: object, num_bytes: int, *, take_back: bool) -> Slot | None:
        """A slot of at least `num_bytes` for `owner`, or `None` where all are being read.

        `take_back` allows to take the slot of a prefetch that nobody has claimed. Falls back to a
        single buffer where device memory is short, and says so in `shortage`.
        """
        slot = self._next_slot(num_bytes, take_back=take_back)
        if slot is None:
            return None
        slot.owner = weakref.ref(owner)
        slot.claimed = False
        slot.reader_queue = None
        self._owned.append(slot)
        return slot

    def give_up(self, slot: Slot) -> None:
        """Free a slot whose copy failed."""
        self._owned.remove(slot)
        slot.owner = _nobody
        slot.writable = self._engine.record()
        self._free.append(slot)

    def release(self) -> None:
        """Let go of all memory. Slots that are being read live on in their readers' tensors."""
        for slot in (*self._owned, *self._free):
            self._settle(slot)
        self._owned.clear()
        self._free.clear()
        self._limit = self._num_slots
        self.shortage = None

    def _next_slot(self, num_bytes: int, *, take_back: bool) -> Slot | None:
        num_held = len(self._owned) + len(self._free)
        if num_held < self._limit and not (num_held and self._is_short()):
            return self._allocate(num_bytes)
        # Oldest first: the one whose readers have had the longest time to finish.
        slot = self._free.popleft() if self._free else None
        if slot is None and take_back:
            slot = next((slot for slot in self._owned if not slot.claimed), None)
            if slot is not None:
                self._owned.remove(slot)
        if slot is None or slot.memory.numel() >= num_bytes:
            return slot
        # Too small: its memory goes before the larger one is asked for, to keep the peak low.
        self._settle(slot)
        del slot
        return self._allocate(num_bytes)

    def _allocate(self, num_bytes: int) -> Slot | None:
        try:
            memory = self._engine.allocate_device(num_bytes)
        except torch.OutOfMemoryError:
            self._shrink(f"the device has no room for another {num_bytes:,} bytes")
            if not self._free:
                return None
            for slot in self._free:
                self._settle(slot)
            self._free.clear()
            return None if self._owned else self._allocate(num_bytes)
        # Fresh memory may have readers in the compute queue, from before it was freed.
        return Slot(memory, writable=self._engine.record(), owner=_nobody)

    def _is_short(self) -> bool:
        free_bytes = self._engine.free_device_bytes()
        if free_bytes is None or free_bytes >= self._min_free_bytes:
            return False
        self._shrink(f"{free_bytes:,} bytes of device memory are free")
        return True

    def _shrink(self, reason: str) -> None:
        if self._limit > 1:
            self._limit = 1
            self.shortage = f"one device buffer instead of {self._num_slots}, because {reason}"

    def _settle(self, slot: Slot) -> None:
        """Order the end of a slot's memory behind the copy into it that nobody waited for."""
        if slot.loaded is not None and not slot.claimed:
            self._engine.wait(slot.loaded, slot.memory)


def _nobody() -> None:
    """Stands for a dead weak reference until a slot has an owner."""
