"""Runs the trace audit in a child process and kills it when it takes too much."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

import harness
from dashboard.trace_worker import EXIT_REFUSED, MAX_OUT_BYTES, TraceAudit
from harness.boundary.atomic_files import replacing
from harness.boundary.bounded_reads import read_regular
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_UPLOAD_BYTES = 256 << 20
MAX_WALL_S = 180.0
MAX_AT_ONCE = 2
"""Traces audited at one time, over all visitors: each may take gigabytes and a core."""

_turns = threading.BoundedSemaphore(MAX_AT_ONCE)
_PACKAGES = Path(harness.__file__).resolve().parent.parent


def audit_upload(
    name: str,
    content: bytes | IO[bytes],
    *,
    on_progress: Callable[[float], object] | None = None,
    max_wall_s: float = MAX_WALL_S,
) -> TraceAudit:
    """Audit a trace that somebody gave; nothing of it is left on disk afterwards.

    `on_progress` gets the share read, 0 to 1. Raises `UsageError` where it is too large, takes too
    long or is no trace.
    """
    with _turn(max_wall_s), tempfile.TemporaryDirectory(prefix="gapless-upload-") as name_of_folder:
        folder = Path(name_of_folder)
        # Only the ending of the given name is used: it may hold anything else.
        path = folder / ("trace.json.gz" if name.lower().endswith(".gz") else "trace.json")
        _save(content, path)
        return _audit(path, folder / "audit.json", on_progress, max_wall_s)


@contextmanager
def _turn(max_wall_s: float) -> Iterator[None]:
    if not _turns.acquire(timeout=max_wall_s):
        raise UsageError("Other traces are being read: try again in some minutes.")
    try:
        yield
    finally:
        _turns.release()


def _save(content: bytes | IO[bytes], path: Path) -> None:
    with replacing(path) as file:
        if isinstance(content, bytes):
            size = file.write(content[: MAX_UPLOAD_BYTES + 1])
        else:
            size = 0
            while size <= MAX_UPLOAD_BYTES and (chunk := content.read(1 << 20)):
                size += file.write(chunk)
    if size > MAX_UPLOAD_BYTES:
        raise UsageError(
            f"The trace is larger than {MAX_UPLOAD_BYTES >> 20} MiB: "
            "run `gapless audit TRACE` on your own machine."
        )


def _audit(
    path: Path, out: Path, on_progress: Callable[[float], object] | None, max_wall_s: float
) -> TraceAudit:
    child = subprocess.Popen(
        [sys.executable, "-m", "dashboard.trace_worker", str(path), str(out)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=path.parent,
        env=_environment(),
    )
    said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    errors: list[str] = []
    readers = (
        threading.Thread(target=_pass_on, args=(child.stdout, said), daemon=True),
        threading.Thread(target=_keep, args=(child.stderr, errors), daemon=True),
    )
    for reader in readers:
        reader.start()
    try:
        _follow(said, on_progress, time.monotonic() + max_wall_s)
        code = child.wait(timeout=10)
    except (TimeoutError, subprocess.TimeoutExpired):
        raise UsageError(
            f"The trace took longer than {max_wall_s:g} s: "
            "run `gapless audit TRACE` on your own machine."
        ) from None
    finally:
        child.kill()
        child.wait()
        for reader in readers:
            reader.join(timeout=10)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    if code == 0:
        return msgspec.json.decode(read_regular(out, MAX_OUT_BYTES), type=TraceAudit)
    why = "".join(errors).strip() if code == EXIT_REFUSED else ""
    raise UsageError(
        why
        or "The trace took more memory or time than an upload may use: "
        "run `gapless audit TRACE` on your own machine."
    )


def _environment() -> dict[str, str]:
    """Little of the server's own: the trace may be hostile. Windows starts nothing without its
    SYSTEMROOT."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {"PYTHONPATH": str(_PACKAGES), "PATH": os.defpath, "OMP_NUM_THREADS": "1", **kept}


def _pass_on(pipe: IO[str] | None, said: queue.SimpleQueue[str | None]) -> None:
    for line in pipe or ():
        said.put(line)
    said.put(None)


def _keep(pipe: IO[str] | None, errors: list[str]) -> None:
    if pipe is not None:
        errors.append(pipe.read(4096))
        pipe.read()


def _follow(
    said: queue.SimpleQueue[str | None],
    on_progress: Callable[[float], object] | None,
    deadline_s: float,
) -> None:
    """Until the child has said its last line. `TimeoutError` at the deadline."""
    while True:
        try:
            line = said.get(timeout=max(deadline_s - time.monotonic(), 0.001))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return
        if on_progress is not None and line.strip().isdigit():
            on_progress(min(int(line), 100) / 100)
