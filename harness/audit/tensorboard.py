"""Hand a trace to TensorBoard: the file name by which torch-tb-profiler finds it."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from pathlib import Path

from harness.boundary.atomic_files import replacing
from harness.boundary.bounded_reads import open_regular
from harness.errors import UsageError

_GZIP_MAGIC = b"\x1f\x8b"


def save_for_tensorboard(
    trace: str | Path, folder: str | Path, *, worker: str = "gapless", time_ms: int | None = None
) -> Path:
    """Put a copy of `trace` into the log folder as `WORKER.TIME.pt.trace.json.gz`.

    `tensorboard --logdir FOLDER` with torch-tb-profiler lists it under the name of the folder.
    `time_ms`: milliseconds since 1970, now by default. The copy appears whole or not at all.
    Raises `UsageError` where one cannot be read or the other not written.
    """
    source, target = Path(trace), Path(folder)
    if not worker or "." in worker or "/" in worker:
        raise UsageError(f"the worker name {worker!r} may hold neither dots nor slashes; rename it")
    stamp = time.time_ns() // 1_000_000 if time_ms is None else time_ms
    path = target / f"{worker}.{stamp}.pt.trace.json.gz"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_regular(source), "rb") as given, replacing(path) as out:
            packed = given.read(2) == _GZIP_MAGIC
            given.seek(0)
            if packed:
                shutil.copyfileobj(given, out)
            else:
                with gzip.GzipFile(filename="", fileobj=out, mode="wb") as writer:
                    shutil.copyfileobj(given, writer)
    except OSError as error:
        raise UsageError(
            f"cannot copy {source} to {target}: {error.strerror or error}; check both paths"
        ) from error
    return path
