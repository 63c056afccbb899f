"""Writes a recording of the virtual clock as a Chrome trace: streams as tracks, for Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.boundary.atomic_files import replace_file
from harness.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.clock.queue_timeline import DeviceRow, Recording

_HOST = 1
_DEVICE = 0
_CALL_NS = 900
"""Length shown for a launch call; it ends when the work is queued."""
_CATEGORIES = {"kernel": "kernel", "h2d": "gpu_memcpy", "d2h": "gpu_memcpy", "d2d": "gpu_memcpy"}
_COPY_NAMES = {
    "h2d": "Memcpy HtoD (Pinned -> Device)",
    "d2h": "Memcpy DtoH (Device -> Pinned)",
    "d2d": "Memcpy DtoD (Device -> Device)",
}
_LAUNCHES = {"kernel": "cudaLaunchKernel"}


def trace_bytes(recording: Recording, *, device: str) -> bytes:
    """`recording` as a gzipped Chrome trace; the same recording always gives the same bytes."""
    return _compressed(_document(recording, device))


def write_trace(recording: Recording, path: str | Path, *, device: str) -> Path:
    """Write `recording` to `path`, compressed where the name ends in `.gz`.

    `device` is the name shown for the device. Raises `StoreError` where it cannot be written.
    """
    target = Path(path)
    content = _document(recording, device)
    try:
        replace_file(target, _compressed(content) if target.suffix == ".gz" else content)
    except OSError as error:
        raise StoreError(
            f"The timeline cannot be written to {target}: {error.strerror}; name another file."
        ) from error
    return target


def _document(recording: Recording, device: str) -> bytes:
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": device}],
        "source": "modelled",
        "traceEvents": list(_events(recording, device)),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _events(recording: Recording, device: str) -> Iterator[dict[str, Any]]:
    yield _named("process_name", _HOST, 0, "host (modelled)")
    yield _named("process_name", _DEVICE, 0, f"{device} (modelled)")
    for stream in sorted({row.stream for row in recording.rows}):
        yield _named("thread_name", _DEVICE, _track(stream), f"stream {stream}")
    for call in recording.calls:
        yield _row("cpu_op", call.name, _HOST, _HOST, call.start_ns, call.end_ns, {})
    for number, row in enumerate(recording.rows, 1):
        yield from _device_events(number, row)
    for wait in recording.waits:
        yield _row("cuda_runtime", wait.api, _HOST, _HOST, wait.start_ns, wait.end_ns, {})
    for time_ns, num_bytes in recording.memory:
        yield {
            "ph": "C",
            "name": "allocated bytes (modelled)",
            "pid": _DEVICE,
            "tid": 0,
            "ts": time_ns / 1e3,
            "args": {"bytes": num_bytes},
        }


def _device_events(number: int, row: DeviceRow) -> Iterator[dict[str, Any]]:
    launch = _LAUNCHES.get(row.kind, "cudaMemcpyAsync")
    arguments: dict[str, Any] = {"correlation": number}
    yield _row("cuda_runtime", launch, _HOST, _HOST, row.call_ns - _CALL_NS, row.call_ns, arguments)
    name = _COPY_NAMES.get(row.kind, row.name)
    details = {**arguments, "device": 0, "stream": _track(row.stream)}
    if row.num_bytes:
        details["bytes"] = row.num_bytes
    yield _row(
        _CATEGORIES[row.kind], name, _DEVICE, _track(row.stream), row.start_ns, row.end_ns, details
    )


def _track(stream: int) -> int:
    """Kineto shows CUDA's default stream as 7."""
    return stream + 7


def _row(
    category: str,
    name: str,
    process: int,
    thread: int,
    start_ns: int,
    end_ns: int,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    # Microseconds with three decimals, as Kineto writes them: nothing of a nanosecond is lost.
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start_ns / 1e3,
        "dur": (end_ns - start_ns) / 1e3,
        "args": arguments,
    }


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
