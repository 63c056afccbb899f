"""Runs a file as the main program, in the process of the audit."""

from __future__ import annotations

import builtins
import os
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from harness.audit.failures import AuditComplete as AuditComplete
from harness.audit.process_state import exit_hooks_of
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def run_as_main(path: Path, arguments: Sequence[str]) -> None:
    """Execute a file as `__main__`. An exit with status 0 is a normal end.

    Raises `WorkloadError` for another status, and whatever the script raises.
    """
    try:
        code = compile(path.read_bytes(), str(path.resolve()), "exec", dont_inherit=True)
    except (MemoryError, RecursionError) as error:
        raise WorkloadError(
            f"{path} is nested too deep for Python to read; run it by itself to see."
        ) from error
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)  # noqa: PTH100 - as Python sets it: links unresolved
    vars(module).update(__builtins__=builtins, __spec__=None, __package__=None, __cached__=None)
    with (
        _as_main(module, [str(path), *arguments], str(path.resolve().parent)),
        exit_hooks_of(lambda function: getattr(function, "__globals__", None) is vars(module)),
    ):
        try:
            exec(code, vars(module))
        except SystemExit as stop:
            if stop.code not in (None, 0):
                raise WorkloadError(f"{path} {_exit_words(stop.code)}.") from stop


def _exit_words(code: object) -> str:
    if isinstance(code, int):
        return f"exited with status {code}; run it by itself to see what it lacks"
    return f"exited with the message {str(code).rstrip('.')!r}"


@contextmanager
def _as_main(module: ModuleType, argv: list[str], folder: str) -> Iterator[None]:
    outer = sys.modules["__main__"], sys.argv, sys.path, list(sys.path)
    sys.modules["__main__"] = module
    sys.argv = argv
    # Python puts the script's folder first; what stands there for this program (its own script's
    # folder, or the working folder) is not for the script to see.
    sys.path[0] = folder
    try:
        yield
    finally:
        # The script may have put anything in their place.
        sys.modules["__main__"], sys.argv, sys.path, sys.path[:] = outer
