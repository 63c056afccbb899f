"""Runs a training script whole, as `python SCRIPT ARGS` would, on the emulated GPU."""

from __future__ import annotations

import builtins
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.audit.emulated import EmulatedAudit
from harness.audit.failures import as_workload_error
from harness.errors import UsageError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.audit.report import AuditReport


def audit_script(
    script: str,
    arguments: Sequence[str] = (),
    *,
    steps: int | None = None,
    skip: int | None = None,
    **settings: Any,
) -> AuditReport:
    """Audit the optimizer steps of a script.

    The script sees `sys.argv`, `__main__` and `sys.path` as Python would set them. After `skip`
    and `steps` more optimizer steps it is left where it stands; without `steps` it runs to its
    end. Without `skip` the first step, with the set-up before it, is left out where others follow.
    `settings` are those of `EmulatedAudit`. Raises `UsageError` where there is no such script and
    `WorkloadError` where it raises or exits with another status than 0.
    """
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"There is no script {script}; check the path.")
    audit = EmulatedAudit(
        target=script,
        boundary="script",
        steps=steps,
        skip=skip,
        stop=True,
        user_files=(str(path),),
        **settings,
    )
    with as_workload_error(script, audit.book), audit:
        run_as_main(path, arguments)
    return audit.report


def run_as_main(path: Path, arguments: Sequence[str]) -> None:
    """Execute a file as `__main__`. An exit with status 0 is an end like any other.

    Raises `WorkloadError` for another status, and whatever the script raises.
    """
    code = compile(path.read_bytes(), str(path.resolve()), "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)  # noqa: PTH100 - as Python sets it: links unresolved
    vars(module).update(__builtins__=builtins, __spec__=None, __package__=None, __cached__=None)
    with _as_main(module, [str(path), *arguments], str(path.resolve().parent)):
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
    outer = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"] = module
    sys.argv = argv
    # Python puts the script's folder first; what stands there for this program (its own script's
    # folder, or the working folder) is not for the script to see.
    sys.path[0] = folder
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = outer
