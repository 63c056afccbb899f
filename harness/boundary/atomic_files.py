"""The one way in which a file is written: whole or not at all, and nothing half-written stays."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_PREFIX = ".tmp-"
"""Begins the name of what is being written; a store skips such names."""


@contextmanager
def replacing(path: str | Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Yields a file that takes the name `path` at the end of the block, in place of what bears it.

    It is written beside `path` under a random name, and removed where the block raises. With
    `durable` it is forced to the disk first. A link is followed, and what is no regular file, such
    as `/dev/stdout`, is written to directly. `OSError` where the medium refuses.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    temporary = temporary_name(target.parent, target.name)
    # Opened in this way for the usual rights of a new file, which `tempfile` does not give.
    with temporary.open("xb") as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            file.close()
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o7777)
            temporary.replace(target)
        except BaseException:
            # On a full disk closing raises as well; what is to be told is the first error.
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                temporary.unlink()
            raise


def replace_file(path: str | Path, content: bytes | str, *, durable: bool = False) -> None:
    """Put `content` under the name `path`, text as UTF-8 with its line ends unchanged."""
    with replacing(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def temporary_name(folder: Path, name: str) -> Path:
    """A name in `folder` that nobody has: random, hidden, and told apart from other programs'."""
    # A name may take 255 bytes, and `name` may take them all.
    return folder / f"{TEMPORARY_PREFIX}{name[:40]}-{os.getpid()}-{secrets.token_hex(8)}"
