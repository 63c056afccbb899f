"""Live and peak bytes of the emulated device, kept by storage as an allocator sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref

_BLOCK_BYTES = 512
"""CUDA's caching allocator rounds each allocation up to this."""


@dataclass
class MemoryBook:
    """Counts the bytes of all live storages of one emulated device."""

    capacity_bytes: int
    live_bytes: int = 0
    peak_bytes: int = 0
    num_allocations: int = 0
    next_address: int = field(default=1 << 40, repr=False)
    """Made-up device addresses, each storage its own, so that `data_ptr()` tells storages apart."""

    def reset_peak(self) -> None:
        """Start a new peak at what is live now."""
        self.peak_bytes = self.live_bytes


class Storage:
    """One allocation on the emulated device; views of it share this object.

    `version` rises with each write, so that `(number, version)` names one state of the data.
    """

    __slots__ = (
        "__weakref__", "address", "book", "known", "lineage", "marks", "num_bytes", "number",
        "size_bytes", "storage", "version",
    )  # fmt: skip

    def __init__(self, book: MemoryBook, num_bytes: int, known: bool) -> None:
        self.book = book
        self.size_bytes = num_bytes
        self.num_bytes = -(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        """What the allocator takes for it."""
        self.storage: weakref.ref[Any] | None = None
        """What `untyped_storage()` gave for it."""
        self.version = 0
        self.known = known
        """Whether the host values of its tensors still hold; a write of unknown data ends it."""
        self.marks: str | None = None
        """What wrote it, where a later read wants to know, such as `found_inf`."""
        book.num_allocations += 1
        self.number = book.num_allocations
        self.lineage = self.number
        """Equal for integer data computed by the same ops from the same data; see `lineage`."""
        self.address = book.next_address
        book.next_address += self.num_bytes + _BLOCK_BYTES
        book.live_bytes += self.num_bytes
        if book.live_bytes > book.peak_bytes:
            book.peak_bytes = book.live_bytes

    def resize(self, num_bytes: int) -> None:
        """Be of this size from now on, at an address where nothing else is."""
        before, self.size_bytes = self.num_bytes, num_bytes
        self.num_bytes = -(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        self.version += 1
        book = self.book
        if self.num_bytes > before:
            self.address = book.next_address
            book.next_address += self.num_bytes + _BLOCK_BYTES
        book.live_bytes += self.num_bytes - before
        book.peak_bytes = max(book.peak_bytes, book.live_bytes)

    def __del__(self) -> None:
        self.book.live_bytes -= self.num_bytes
