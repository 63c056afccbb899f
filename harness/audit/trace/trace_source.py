"""Bytes of a trace file: plain or gzip, bounded, and tolerant of a file that ends early."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from harness.boundary.bounded_reads import open_regular
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.audit.trace.limits import TraceLimits

_GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 1 << 20
_SALVAGE_BYTES = 64
_GZIP_WINDOW = 31
"""zlib's code for "gzip header and trailer"."""


@dataclass(slots=True)
class ByteSource:
    """Blocks of decompressed bytes, and what went wrong while reading them."""

    path: Path
    limits: TraceLimits
    on_progress: Callable[[int, int], None] | None = None
    """Called with file bytes read so far and the size of the file."""
    notes: list[str] = field(default_factory=list)
    num_bytes: int = 0
    """Decompressed bytes handed out."""

    def blocks(self) -> Iterator[bytes]:
        """Decompressed blocks of at most about `chunk_bytes`. Raises `UsageError`."""
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                compressed = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                produce = self._gzip if compressed else self._plain
                for block in produce(file, size):
                    room = self.limits.max_bytes - self.num_bytes
                    self.num_bytes += min(len(block), room)
                    yield block[:room]
                    if len(block) >= room:
                        self.notes.append(
                            f"only the first {self.limits.max_bytes:,} bytes of the trace were read"
                        )
                        return
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot read the trace {self.path}: {reason}; give the path of a readable file"
            ) from error

    def _report(self, done: int, size: int) -> None:
        if self.on_progress is not None:
            self.on_progress(done, size)

    def _plain(self, file: BinaryIO, size: int) -> Iterator[bytes]:
        while block := file.read(self.limits.chunk_bytes):
            self._report(file.tell(), size)
            yield block

    def _gzip(self, file: BinaryIO, size: int) -> Iterator[bytes]:
        inflate = before = zlib.decompressobj(_GZIP_WINDOW)
        produced = 0
        pending = b""
        try:
            while pending or (pending := file.read(_READ_BYTES)):
                before = inflate.copy()
                block = inflate.decompress(pending, self.limits.chunk_bytes)
                produced += len(block)
                self._check_expansion(produced, file.tell())
                if block:
                    self._report(file.tell(), size)
                    yield block
                pending = inflate.unconsumed_tail
                if inflate.eof:
                    # A gzip file may hold several members; anything else after one is padding.
                    pending = inflate.unused_data.lstrip(b"\0") or file.read(_READ_BYTES)
                    if not pending.startswith(_GZIP_MAGIC):
                        return
                    inflate = zlib.decompressobj(_GZIP_WINDOW)
        except zlib.error as error:
            salvaged = _salvage(before, pending, self.limits.chunk_bytes)
            if salvaged:
                yield salvaged
            elif not produced:
                raise UsageError(
                    f"{self.path} starts like a gzip file but is not one ({error}); "
                    "give the trace as the profiler wrote it"
                ) from error
            self.notes.append(f"the gzip data is damaged ({error}); what precedes it was read")
            return
        self.notes.append("the gzip data ends early; what precedes it was read")

    def _check_expansion(self, produced: int, consumed: int) -> None:
        limits = self.limits
        if produced > limits.expansion_free_bytes and produced > limits.max_expansion * consumed:
            raise UsageError(
                f"{self.path} expands to more than {limits.max_expansion} times its size, which no "
                "trace does; decompress it yourself if you trust it"
            )


def _salvage(inflate: zlib._Decompress, data: bytes, limit: int) -> bytes:
    """What `data` holds before the damage: a failed call gives nothing of what it had read."""
    found: list[bytes] = []
    size = 0
    for start in range(0, len(data), _SALVAGE_BYTES):
        try:
            block = inflate.decompress(data[start : start + _SALVAGE_BYTES])
        except zlib.error:
            break
        found.append(block)
        size += len(block)
        if size > limit:
            break
    return b"".join(found)
