"""Writes the trace again with the findings of the audit added, for Perfetto."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from harness.audit.trace.limits import TraceLimits
from harness.audit.trace.load import load_trace
from harness.audit.trace.trace_audit import Analysis, analyse
from harness.audit.trace.trace_source import ByteSource
from harness.audit.trace.trace_text import find_event_list
from harness.boundary.atomic_files import replacing
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESS = "gapless"
"""Process name of the added rows, and their category, by which our own reader skips them."""
_WAIT, _EXPOSED, _IDLE = "syncs", "exposed idle", "idle"
_MAX_COUNTER_POINTS = 20_000


def annotate(path: str | Path, out: str | Path, *, limits: TraceLimits | None = None) -> int:
    """Write `out` (.json.gz): every event of the trace unchanged, then our findings.

    Added: a slice for each sync with its owner and cost, one for each exposed idle time, and
    a counter of the launch queue per device. Returns the number of events added. The file appears
    whole or not at all. Raises `UsageError` where the trace cannot be read or `out` not written.
    """
    path, out = Path(path), Path(out)
    limits = limits or TraceLimits()
    if out.exists() and out.samefile(path):
        raise UsageError(f"{out} is the trace itself; give --annotate another file name")
    analysis = analyse(load_trace(path, limits=limits))
    added = list(_events(analysis))
    try:
        with (
            replacing(out) as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=5) as packed,
        ):
            _copy_with(path, limits, added, packed)
    except OSError as error:
        raise UsageError(
            f"cannot write {out}: {error.strerror or error}; choose a folder you can write to"
        ) from error
    return len(added)


def _copy_with(
    path: Path, limits: TraceLimits, added: list[dict[str, Any]], out: BinaryIO | gzip.GzipFile
) -> None:
    """The original text with our events put in front of the list of events."""
    text = b",\n".join(msgspec.json.encode(event) for event in added)
    blocks = ByteSource(path, limits).blocks()
    found = find_event_list(path, blocks, limits)
    out.write(found.head + found.opening + text)
    rest = found.rest
    while not rest.strip() and (block := next(blocks, b"")):
        rest += block
    if not rest.lstrip().startswith(b"]"):
        out.write(b",")
    out.write(rest)
    for block in blocks:
        out.write(block)


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1e3


def _events(analysis: Analysis) -> Iterator[dict[str, Any]]:
    threads = {_WAIT: 0, _EXPOSED: 1, _IDLE: 2}
    yield _meta("process_name", {"name": PROCESS})
    yield _meta("process_sort_index", {"sort_index": -1})
    for name, thread in threads.items():
        yield _meta("thread_name", {"name": name}, thread)
    yield from _waits(analysis)
    for device, idle in analysis.exposure.idle.items():
        for start, end in zip(idle.start.tolist(), idle.end.tolist(), strict=True):
            yield _slice(
                "device idle because the host waited",
                threads[_EXPOSED],
                start,
                end,
                {"device": analysis.device_names[device]},
            )
    for device, time in analysis.devices.items():
        gaps = time.idle
        for start, end in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True):
            yield _slice(
                "device idle", threads[_IDLE], start, end, {"device": analysis.device_names[device]}
            )
        yield from _counter(analysis, device)


def _waits(analysis: Analysis) -> Iterator[dict[str, Any]]:
    trace, waits, exposure = analysis.trace, analysis.waits, analysis.exposure
    for number, site in enumerate(analysis.sites):
        owner = site.owner
        for index in site.waits.tolist():
            yield _slice(
                f"wait: {site.kind}",
                0,
                int(waits.start[index]),
                int(waits.end[index]),
                {
                    "site": number,
                    "what": site.kind.sentence,
                    "op": owner.op,
                    "api": trace.names[trace.calls.name[waits.call[index]]],
                    "cause": str(owner.cause) if owner.cause is not None else owner.context,
                    "module": owner.module,
                    "phase": owner.phase,
                    "blocked us": _microseconds(int(waits.blocked[index])),
                    "exposed us": _microseconds(int(exposure.exposed[index])),
                },
            )


def _counter(analysis: Analysis, device: int) -> Iterator[dict[str, Any]]:
    queue = analysis.queues[device]
    stride = max(1, len(queue.time) // _MAX_COUNTER_POINTS)
    name = f"launch queue, device {analysis.device_names[device]}"
    for time, depth in zip(
        queue.time[::stride].tolist(), queue.depth[::stride].tolist(), strict=True
    ):
        yield {
            "ph": "C",
            "cat": PROCESS,
            "name": name,
            "pid": PROCESS,
            "ts": _microseconds(time),
            "args": {"queued": depth},
        }


def _meta(name: str, args: dict[str, Any], thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "cat": PROCESS, "name": name, "pid": PROCESS, "tid": thread, "args": args}


def _slice(name: str, thread: int, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": PROCESS,
        "name": name,
        "pid": PROCESS,
        "tid": thread,
        "ts": _microseconds(start),
        "dur": _microseconds(end - start),
        "args": args,
    }
