"""Reads files that others wrote: regular ones only, and never more than asked for."""

from __future__ import annotations

import errno
import linecache
import os
import stat
import zlib
from pathlib import Path

MAX_SOURCE_BYTES = 8 << 20
_LEAST_READ_BYTES = 1 << 16
_GZIP_WINDOW = 31
"""zlib's code for "gzip header and trailer"."""


def open_regular(path: Path, *, follow_links: bool = True) -> int:
    """A descriptor to read `path` from. `OSError` where it is a pipe, a device or a folder.

    Opening does not wait: a pipe that nobody writes to, planted under the name of a file, would
    hold the reader for ever.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path, limit_bytes: int, *, follow_links: bool = True) -> bytes:
    """The content of a regular file; an `OSError` where it holds more than `limit_bytes`."""
    with os.fdopen(open_regular(path, follow_links=follow_links), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = b""
        # Asked for piece by piece: /proc gives no size, and a file may grow while it is read.
        while size <= limit_bytes and (
            piece := file.read(max(size - len(content) + 1, _LEAST_READ_BYTES))
        ):
            content += piece
            size = max(size, len(content))
    if size > limit_bytes:
        raise too_large(path, size, limit_bytes)
    return content


def too_large(path: str | Path, size_bytes: int, limit_bytes: int) -> OSError:
    """The error for a file that holds more than its reader takes."""
    what = f"larger than the limit ({size_bytes} > {limit_bytes} bytes)"
    return OSError(errno.EFBIG, what, str(path))


def gunzip(content: bytes, limit_bytes: int) -> bytes:
    """What gzipped `content` holds. `ValueError` where it is damaged or more than `limit_bytes`."""
    unpacked = bytearray()
    while content:
        inflate = zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            unpacked += inflate.decompress(content, limit_bytes + 1 - len(unpacked))
        except zlib.error as error:
            raise ValueError(f"the gzip data is damaged: {error}") from error
        if len(unpacked) > limit_bytes:
            raise ValueError(f"it holds more than {limit_bytes} bytes")
        if not inflate.eof:
            raise ValueError("the gzip data ends early")
        # A file may hold several members, and padding behind them.
        content = inflate.unused_data.lstrip(b"\0")
    return bytes(unpacked)


def source_lines(file: str) -> list[str]:
    """Lines of Python source, kept for the next call; none where it is no regular file, or one
    larger than `MAX_SOURCE_BYTES`. A trace may name any file as the place of its code."""
    if file not in linecache.cache:
        try:
            found = Path(file).stat()
        except (OSError, ValueError):
            found = None
        if found and (not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SOURCE_BYTES):
            return []
    return linecache.getlines(file)
