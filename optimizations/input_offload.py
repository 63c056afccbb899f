"""Keeps checkpoint inputs in host memory between forward and backward, for one device.

The saved-tensor hooks of `torch.autograd.graph` call `store` in forward and `fetch` in backward;
what autograd holds in between is a `StoredInput`. It lives exactly as long as the part of the graph
that needs it, and everything lent to it (host buffer, device slot) comes back when it dies: after
the layer's backward, or when a graph is dropped without one.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from optimizations.device_ring import DeviceRing

if TYPE_CHECKING:
    from optimizations.copy_engine import CopyEngine, Mark
    from optimizations.device_ring import Slot
    from optimizations.host_pool import HostBuffer, HostPool


@dataclass(frozen=True)
class OffloadPolicy:
    """When copies start and who waits for them."""

    num_slots: int
    """Device buffers that reloads go through."""
    prefetch_depth: int
    """Inputs whose reload starts before the layer ahead of them recomputes."""
    max_deferred_waits: int
    """Offloads that compute may run ahead of at a layer's end; 0 waits for each in its layer."""
    keep_last: int
    """Inputs of the last checkpointed layers that stay on the device, never copied."""
    min_free_bytes: int
    """Free device memory below which there is one slot only."""


class StoredInput:
    """One checkpoint input between forward and backward, in at most three places."""

    def __init__(self, tensor: torch.Tensor, previous: weakref.ref[StoredInput] | None) -> None:
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.num_bytes = tensor.numel() * tensor.element_size()
        self.previous = previous
        """The input stored before this one: the one whose backward comes next."""
        self.resident: torch.Tensor | None = tensor
        """The input itself, while it has not left the device."""
        self.version: int = tensor._version
        self.host: HostBuffer | None = None
        self.slot: Slot | None = None

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """`memory`, `uint8[at least num_bytes]`, seen as this input."""
        return memory[: self.num_bytes].view(self.dtype).view(self.shape)

    def loaded_slot(self) -> Slot | None:
        """The slot that holds or receives this input, unless it was given to another."""
        slot = self.slot
        return slot if slot is not None and slot.owner() is self else None

    def unmodified_resident(self) -> torch.Tensor | None:
        """The input on the device. Raises `RuntimeError` if it was written to since it was stored.

        Plain checkpointing raises there too; here the copy could also hold either state.
        """
        if self.resident is not None and self.resident._version != self.version:
            raise RuntimeError(
                "The input of a checkpointed layer was modified in place after the layer was "
                "called, so its recompute would not see what its forward saw; use an out-of-place "
                "operation, or clone the tensor first."
            )
        return self.resident


@dataclass(frozen=True)
class _Departure:
    """An offload under way. Holds the tensor, which the copy reads even when its owner is gone."""

    tensor: torch.Tensor
    mark: Mark
    stored: weakref.ref[StoredInput]


class InputOffloader:
    """Stores and fetches checkpoint inputs of one device by one policy.

    Threads may share it. Backward may fetch in any order, fetch again, or never come; order only
    decides how much of the copies is hidden.
    """

    def __init__(self, engine: CopyEngine, pool: HostPool, policy: OffloadPolicy) -> None:
        self._engine = engine
        self._pool = pool
        self._policy = policy
        self._ring = DeviceRing(engine, policy.num_slots, policy.min_free_bytes)
        self._latest: weakref.ref[StoredInput] | None = None
        self._kept: deque[weakref.ref[StoredInput]] = deque()
        self._departures: deque[_Departure] = deque()
        self._lock = threading.RLock()

    @property
    def device_buffer_bytes(self) -> int:
        """Device memory of the buffers that reloads go through."""
        return self._ring.num_bytes

    @property
    def shortage(self) -> str | None:
        """Why there are fewer device buffers than the policy asks for, if so."""
        return self._ring.shortage

    def store(self, tensor: torch.Tensor) -> StoredInput:
        """Take charge of a layer's input, before the layer runs.

        Which layer is the last is not known in advance, so an input leaves only when `keep_last`
        later ones have come: under the compute of a later layer, and the last ones never.
        """
        with self._lock:
            # Detached: holding the tensor must not hold the graph that made it.
            stored = StoredInput(tensor.detach(), self._latest)
            self._latest = weakref.ref(stored)
            self._kept.append(self._latest)
            while len(self._kept) > self._policy.keep_last:
                leaving = self._kept.popleft()()
                if leaving is not None:
                    self._offload(leaving)
            return stored

    def end_of_layer(self) -> None:
        """Make compute wait for offloads, as many as the policy does not defer."""
        with self._lock:
            while len(self._departures) > self._policy.max_deferred_waits:
                self._see_off(self._departures.popleft())

    def fetch(self, stored: StoredInput) -> torch.Tensor:
        """The input on the device, as backward of its layer begins; reads must be queued now.

        An input whose offload was not waited for has not left the device and is used from there.
        """
        with self._lock:
            self._ring.reclaim()
            self._forget_the_dead()
            resident = stored.unmodified_resident()
            if torch.is_grad_enabled():
                # `create_graph`: a graph of second order reads the input when this layer is long
                # done, and a slot would by then hold another one.
                return self._reload_to_own_memory(stored) if resident is None else resident
            slot = self._reload_to_slot(stored, take_back=True) if resident is None else None
            self._prefetch_before(stored)
            if resident is not None:
                return resident
            if slot is None:
                return self._reload_to_own_memory(stored)
            self._claim(slot)
            return stored.view(slot.memory)

    def release_device_buffers(self) -> None:
        """Let go of the device buffers; graphs that still need them keep theirs."""
        with self._lock:
            self._ring.release()

    def finish(self) -> None:
        """Wait for all offloads under way and let go of the device buffers."""
        with self._lock:
            while self._departures:
                self._see_off(self._departures.popleft())
            self._ring.release()

    def _offload(self, stored: StoredInput) -> None:
        tensor = stored.unmodified_resident()
        if tensor is None:
            return
        host = self._pool.take(stored.num_bytes)
        weakref.finalize(stored, self._pool.give_back, host).atexit = False
        after = () if host.last_copy is None else (host.last_copy,)
        host.last_copy = self._engine.offload(tensor, stored.view(host.memory), after)
        stored.host = host
        self._departures.append(_Departure(tensor, host.last_copy, weakref.ref(stored)))

    def _see_off(self, departure: _Departure) -> None:
        self._engine.wait(departure.mark)
        stored = departure.stored()
        if stored is not None:
            stored.unmodified_resident()
            stored.resident = None

    def _forget_the_dead(self) -> None:
        """Let go of tensors whose offload was never needed, as their layers are done."""
        alive = deque[_Departure]()
        for departure in self._departures:
            if departure.stored() is None:
                self._engine.wait(departure.mark)
            else:
                alive.append(departure)
        self._departures = alive

    def _prefetch_before(self, stored: StoredInput) -> None:
        for _ in range(self._policy.prefetch_depth):
            previous = stored.previous() if stored.previous is not None else None
            if previous is None:
                return
            if (
                previous.resident is None
                and self._reload_to_slot(previous, take_back=False) is None
            ):
                return
            stored = previous

    def _reload_to_slot(self, stored: StoredInput, *, take_back: bool) -> Slot | None:
        """The slot with this input's reload queued, or `None` where every slot is being read."""
        slot = stored.loaded_slot()
        if slot is not None:
            return slot
        slot = self._ring.acquire(stored, stored.num_bytes, take_back=take_back)
        if slot is not None:
            slot.loaded = self._reload(stored, slot.memory, slot.writable)
            stored.slot = slot
        return slot

    def _reload_to_own_memory(self, stored: StoredInput) -> torch.Tensor:
        memory = self._engine.allocate_device(stored.num_bytes)
        mark = self._reload(stored, memory, self._engine.record())
        self._engine.wait(mark, memory)
        return stored.view(memory)

    def _reload(self, stored: StoredInput, memory: torch.Tensor, writable: Mark) -> Mark:
        host = stored.host
        assert host is not None, "an input that left the device has a host buffer"
        # The offload was waited for by compute, but the reload runs beside compute.
        arrived = host.last_copy
        host.last_copy = self._engine.reload(
            stored.view(host.memory), stored.view(memory), (arrived, writable)
        )
        return host.last_copy

    def _claim(self, slot: Slot) -> None:
        try:
            self._engine.wait(slot.loaded, slot.memory)
        except BaseException:
            self._ring.give_up(slot)
            raise
        slot.claimed = True
        slot.reader_queue = self._engine.compute_queue()
