"""The process as it was, whatever audited code did to it: streams, folder, arguments, exits."""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def process_state_kept() -> Iterator[None]:
    """What the code inside does to output, folder, `sys` and exits of this process ends with it.

    `os._exit` inside ends the code, as `sys.exit` does, so that a report is still given; on
    another thread it ends the process, with status 3 instead of 0.
    """
    modules = sys.modules.get("__main__")
    argv, path, entries = sys.argv, sys.path, list(sys.path)
    with _streams_kept(), _folder_kept(), _exit_that_raises():
        try:
            yield
        finally:
            sys.argv, sys.path = argv, path
            sys.path[:] = entries
            if modules is not None:
                sys.modules["__main__"] = modules


@contextmanager
def exit_hooks_of(is_own: Callable[[Any], bool]) -> Iterator[None]:
    """Functions that the code inside registers with `atexit`, and for which `is_own` holds, run at
    the end of the block, last one first; those of libraries wait for the end of the process."""
    hooks: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    register = atexit.register

    def collect(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not is_own(function):
            return register(function, *args, **kwargs)
        hooks.append((function, args, kwargs))
        return function

    atexit.register = collect
    try:
        yield
        while hooks:
            function, args, kwargs = hooks.pop()
            function(*args, **kwargs)
    finally:
        atexit.register = register


@contextmanager
def _streams_kept() -> Iterator[None]:
    objects = sys.stdin, sys.stdout, sys.stderr
    copies = [_duplicate(descriptor) for descriptor in range(3)]
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # A stream of the script's own may do anything.
                stream.flush()
        for descriptor, copy in enumerate(copies):
            if copy is not None:
                os.dup2(copy, descriptor)
                os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = objects
        sys.stdout, sys.stderr = _open_again(sys.stdout, 1), _open_again(sys.stderr, 2)


def _duplicate(descriptor: int) -> int | None:
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def _open_again(stream: TextIO, descriptor: int) -> TextIO:
    if stream is None or not stream.closed:
        return stream
    return io.open(  # noqa: UP020 - `open` of the built-ins may be the script's by now
        descriptor, "w", encoding=stream.encoding, errors=stream.errors, closefd=False
    )


@contextmanager
def _folder_kept() -> Iterator[None]:
    # By descriptor: the folder may be renamed meanwhile, and where it is gone there is no name.
    try:
        folder: int | str = os.open(".", os.O_RDONLY) if os.name == "posix" else os.getcwd()  # noqa: PTH109
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.chdir(folder)
        if isinstance(folder, int):
            os.close(folder)


@contextmanager
def _exit_that_raises() -> Iterator[None]:
    real, process = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() != process:
            real(status)  # A child that was forked.
        if threading.current_thread() is not threading.main_thread():
            os.write(2, b"gapless: a thread of the audited code ended the process by os._exit.\n")
            real(status or 3)
        raise SystemExit(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = real
