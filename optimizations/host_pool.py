"""Host buffers that are used again from step to step: pinning memory costs more than a copy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from optimizations.copy_engine import CopyEngine, Mark


@dataclass(eq=False)
class HostBuffer:
    """One buffer, `uint8[capacity]`, on loan to one checkpoint input."""

    memory: torch.Tensor
    last_copy: Mark | None = None
    """The last copy from or to it; the next one of another owner starts after it."""

    @property
    def num_bytes(self) -> int:
        return self.memory.numel()


class HostPool:
    """Lends host buffers by size; holds as many as were ever out at the same time.

    `give_back` may be called by the garbage collector, on any thread and at any moment, hence it
    takes no lock; all other methods are called by one thread at a time.
    """

    def __init__(self, engine: CopyEngine) -> None:
        self._engine = engine
        self._returned: deque[HostBuffer] = deque()
        self._free: list[HostBuffer] = []
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Host memory held, lent out or not."""
        return self._num_bytes

    @property
    def num_free(self) -> int:
        """Buffers that nobody has on loan."""
        return len(self._free) + len(self._returned)

    def take(self, num_bytes: int) -> HostBuffer:
        """The smallest free buffer that holds `num_bytes`, or a new one.

        Where all free buffers are too small, the largest of them makes way for the new one, so
        that batches of varying length do not leave a buffer of every length behind.
        """
        while self._returned:
            self._free.append(self._returned.popleft())
        self._free.sort(key=lambda buffer: buffer.num_bytes)
        for index, buffer in enumerate(self._free):
            if buffer.num_bytes >= num_bytes:
                return self._free.pop(index)
        if self._free:
            self._num_bytes -= self._free.pop().num_bytes
        memory = self._engine.allocate_host(num_bytes)
        self._num_bytes += num_bytes
        return HostBuffer(memory)

    def give_back(self, buffer: HostBuffer) -> None:
        """End a loan. Copies of the buffer may still be under way; its `last_copy` tells."""
        self._returned.append(buffer)

    def clear(self) -> None:
        """Drop what is not on loan."""
        self._free.extend(self._returned)
        self._returned.clear()
        self._num_bytes -= sum(buffer.num_bytes for buffer in self._free)
        self._free.clear()
