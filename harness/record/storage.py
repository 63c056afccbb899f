"""Where a store's bytes lie: a local folder, or any fsspec file system.

Only what differs between the two is here: how a run's folder is scanned, read within a size limit,
and published so that a kill leaves all of it or none. Every failure is an `OSError`, so that one
place (`harness.record.store`) turns failures into sentences.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.boundary.atomic_files import TEMPORARY_PREFIX, replace_file, temporary_name
from harness.boundary.bounded_reads import read_regular, too_large
from harness.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STORE_VARIABLE = "GAPLESS_STORE"
"""Environment variable that names the store where none is given."""
DEFAULT_STORE = "results"
RUN_FILE = "run.json"
SAMPLES_FILE = "samples.parquet"
STALE_AFTER_S = 3600.0
"""A temporary folder untouched for this long belongs to a dead writer; a write takes seconds."""

_READ_TOGETHER = 64


@dataclass(frozen=True)
class FileStamp:
    """What tells one version of a file from another without reading it."""

    size_bytes: int
    version: str
    """Modification time or ETag."""


@dataclass(frozen=True)
class Item:
    """One visible name directly under the root, as found; nothing in it has been read."""

    name: str
    is_folder: bool
    run: FileStamp | None = None
    samples: FileStamp | None = None


class Storage(Protocol):
    """A flat folder of run folders. All methods raise `OSError` where the medium fails."""

    def scan(self) -> list[Item]:
        """Every name under the root that is not hidden; an absent root holds nothing."""
        ...

    def read(self, path: str, limit_bytes: int) -> bytes:
        """Content of one regular file; an `OSError` where it holds more than `limit_bytes`."""
        ...

    def read_many(self, paths: Sequence[str], limit_bytes: int) -> Iterator[bytes | OSError]:
        """The same for many files, in order; a file that cannot be read gives its error."""
        ...

    def publish(self, name: str, files: Mapping[str, bytes]) -> None:
        """Make the folder `name` with these files visible, all at once and for good.

        The last file is the one whose presence makes the folder a run. `FileExistsError` where
        the name is taken.
        """
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Put one file under the root, atomically; for a cache, so without forcing it to disk."""
        ...


def default_store() -> str:
    """The store where none is given: `GAPLESS_STORE`, else the folder `results` here."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def open_storage(root: str) -> Storage:
    """The storage for a local path, a `file://` URL or any other URL that fsspec knows."""
    if not root or "\0" in root:
        raise StoreError("The store's root is empty or holds a null byte: give a folder or a URL.")
    for prefix in ("file://", "local://"):
        root = root.removeprefix(prefix)
    if "://" in root:
        return RemoteStorage(root)
    return LocalStorage(Path(root).expanduser())


@dataclass(frozen=True)
class LocalStorage:
    """A folder on this machine. Links are not followed: a store never reaches outside itself."""

    root: Path

    def scan(self) -> list[Item]:
        try:
            with os.scandir(self.root) as entries:
                return [self._item(entry) for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []

    @staticmethod
    def _item(entry: os.DirEntry[str]) -> Item:
        if not entry.is_dir(follow_symlinks=False):
            return Item(entry.name, is_folder=False)
        return Item(
            entry.name,
            is_folder=True,
            run=_local_stamp(f"{entry.path}/{RUN_FILE}"),
            samples=_local_stamp(f"{entry.path}/{SAMPLES_FILE}"),
        )

    def read(self, path: str, limit_bytes: int) -> bytes:
        if (self.root / path).parent.is_symlink():
            raise OSError(errno.ELOOP, "links are not followed in a store", path)
        return read_regular(self.root / path, limit_bytes, follow_links=False)

    def read_many(self, paths: Sequence[str], limit_bytes: int) -> Iterator[bytes | OSError]:
        for path in paths:
            try:
                yield self.read(path, limit_bytes)
            except OSError as error:
                yield error

    def publish(self, name: str, files: Mapping[str, bytes]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        temporary = temporary_name(self.root, name)
        try:
            temporary.mkdir()
            for file_name, content in files.items():
                replace_file(temporary / file_name, content, durable=True)
            _sync_folder(temporary)
            if (self.root / name).exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            try:
                temporary.rename(self.root / name)
            except OSError as error:
                # Another writer took the name since the line above.
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
                raise
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _sync_folder(self.root)

    def replace(self, name: str, content: bytes) -> None:
        replace_file(self.root / name, content)

    def _remove_leftovers(self) -> None:
        oldest = time.time() - STALE_AFTER_S
        for leftover in self.root.glob(f"{TEMPORARY_PREFIX}*"):
            # Another writer may be cleaning at the same time.
            with suppress(OSError):
                if leftover.lstat().st_mtime < oldest:
                    if leftover.is_dir() and not leftover.is_symlink():
                        shutil.rmtree(leftover)
                    else:
                        leftover.unlink()


class RemoteStorage:
    """Any file system that fsspec reaches. An object store has no rename, so the file that makes a
    folder a run is put last, and putting one object is atomic."""

    def __init__(self, root: str) -> None:
        try:
            import fsspec

            self._fs, self._root = fsspec.core.url_to_fs(root)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"The store {root!r} cannot be opened: {error}; install the package it names, "
                f"or give a local folder."
            ) from error
        self._root = self._root.rstrip("/")

    def scan(self) -> list[Item]:
        try:
            with _remote_errors(self._root):
                self._fs.invalidate_cache()
                # Without `maxdepth`: object stores answer it by a flat listing, 1,000 keys a call.
                infos = self._fs.find(self._root, detail=True)
        except FileNotFoundError:
            return []
        folders: dict[str, dict[str, FileStamp]] = {}
        items: list[Item] = []
        for path, info in infos.items():
            name, _, rest = str(path)[len(self._root) :].lstrip("/").partition("/")
            if name.startswith("."):
                continue
            if rest:
                folders.setdefault(name, {})[rest] = _remote_stamp(info)
            else:
                items.append(Item(name, is_folder=False))
        for name, files in folders.items():
            run, samples = files.get(RUN_FILE), files.get(SAMPLES_FILE)
            items.append(Item(name, is_folder=True, run=run, samples=samples))
        return items

    def read(self, path: str, limit_bytes: int) -> bytes:
        target = f"{self._root}/{path}"
        with _remote_errors(path):
            size = self._fs.info(target)["size"]
            if size is not None and size > limit_bytes:
                raise too_large(path, size, limit_bytes)
            content: bytes = self._fs.cat_file(target, start=0, end=limit_bytes + 1)
        if len(content) > limit_bytes:
            raise too_large(path, len(content), limit_bytes)
        return content

    def read_many(self, paths: Sequence[str], limit_bytes: int) -> Iterator[bytes | OSError]:
        for start in range(0, len(paths), _READ_TOGETHER):
            chunk = [f"{self._root}/{path}" for path in paths[start : start + _READ_TOGETHER]]
            starts, ends = [0] * len(chunk), [limit_bytes + 1] * len(chunk)
            try:
                with _remote_errors(self._root):
                    contents = self._fs.cat_ranges(chunk, starts, ends, on_error="return")
            except OSError as error:
                contents = [error] * len(chunk)
            for path, content in zip(chunk, contents, strict=True):
                if isinstance(content, OSError):
                    yield content
                elif isinstance(content, BaseException):
                    yield OSError(errno.EIO, str(content), path)
                elif len(content) > limit_bytes:
                    yield too_large(path, len(content), limit_bytes)
                else:
                    yield bytes(content)

    def publish(self, name: str, files: Mapping[str, bytes]) -> None:
        folder = f"{self._root}/{name}"
        with _remote_errors(name):
            if self._fs.exists(f"{folder}/{list(files)[-1]}"):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            try:
                self._fs.makedirs(folder, exist_ok=True)
                for file_name, content in files.items():
                    self._fs.pipe_file(f"{folder}/{file_name}", content)
            except BaseException:
                # The failure above is the one to tell.
                with suppress(Exception):
                    self._fs.rm(folder, recursive=True)
                raise

    def replace(self, name: str, content: bytes) -> None:
        with _remote_errors(name):
            self._fs.pipe_file(f"{self._root}/{name}", content)


@contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    """Each fsspec backend raises the errors of its own client library; all become `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error


def _local_stamp(path: str) -> FileStamp | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileStamp(found.st_size, str(found.st_mtime_ns))


def _remote_stamp(info: Mapping[str, Any]) -> FileStamp:
    keys = ("ETag", "etag", "md5", "mtime", "LastModified", "updated", "created")
    version = next((str(info[key]) for key in keys if info.get(key) is not None), "")
    return FileStamp(int(info.get("size") or 0), version)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder; its renames are journalled.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
