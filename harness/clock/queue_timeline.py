"""Time on an emulated device: one host, streams as queues, one copy engine for each direction.

All times are integer nanoseconds from the start. Work is placed when the host queues it, which is
exact: it can only depend on what was queued before it. Stated simplifications: kernels of different
streams run side by side at full speed (they do not share the multiprocessors), and a copy engine
takes queued copies first come, first served, filling gaps that are long enough.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

WorkKind = Literal["kernel", "h2d", "d2h", "d2d"]

_ENGINE_MEMORY = 64
"""Copies an engine remembers in order to fill gaps between them."""


class DeviceRow(NamedTuple):
    """One piece of work as the device carried it out."""

    start_ns: int
    end_ns: int
    stream: int
    kind: WorkKind
    name: str
    call_ns: int
    """When the host queued it."""
    num_bytes: int
    """Bytes copied; 0 for a kernel."""


class WaitRow(NamedTuple):
    """One stretch in which the host waited for the device."""

    start_ns: int
    end_ns: int
    api: str
    site: int
    """Number the caller gave it, to find the source line again."""


class Call(NamedTuple):
    """One op on the host: from its call to the moment the host went on."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True)
class QueueTimes:
    """What lies between the host's call and the kernel."""

    latency_ns: int = 4_000
    """From the launch call to the earliest start on an idle device."""
    gap_ns: int = 800
    """Between the end of one kernel and the start of the next in the same stream."""
    limit: int = 1024
    """Launches a stream holds before the host has to wait."""


@dataclass
class Recording:
    """Everything that happened while recording was on, in the order it was queued."""

    start_ns: int
    latency_ns: int = 0
    """From a launch call to the earliest start of its work."""
    rows: list[DeviceRow] = field(default_factory=list)
    waits: list[WaitRow] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    """Host time and bytes allocated on the device, at each change."""
    end_ns: int = 0


class _CopyEngine:
    """One direction of the link: copies run one after the other."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def reserve(self, ready_ns: int, duration_ns: int) -> int:
        """Start of the earliest gap from `ready_ns` on, which is taken from then on."""
        start = ready_ns
        for begin, end in self._taken:
            if start + duration_ns <= begin:
                break
            start = max(start, end)
        insort(self._taken, (start, start + duration_ns))
        if len(self._taken) > _ENGINE_MEMORY:
            del self._taken[0]
        return start


class Timeline:
    """The state of the clock: where the host is, and when each stream and engine is free."""

    def __init__(self, times: QueueTimes, *, blocking: bool = False) -> None:
        """`blocking`: the host waits for each kernel, as a CPU that computes itself does."""
        self.times = times
        self.host_ns = 0
        self.recording: Recording | None = None
        self._blocking = blocking
        self._tails: dict[int, int] = {}
        self._latest = 0
        self._queued: dict[int, deque[int]] = {}
        self._events: dict[int, int] = {}
        self._engines: dict[WorkKind, _CopyEngine] = {"h2d": _CopyEngine(), "d2h": _CopyEngine()}

    # ---- what the host queues

    def kernel(self, stream: int, duration_ns: int, name: str) -> None:
        """Queue a kernel."""
        self._queue(stream, duration_ns, "kernel", name, 0)

    def copy(
        self, stream: int, duration_ns: int, direction: WorkKind, name: str, num_bytes: int
    ) -> None:
        """Queue a copy."""
        self._queue(stream, duration_ns, direction, name, num_bytes)

    def record(self, event: int, stream: int) -> None:
        """Event `event` is reached when all work queued on `stream` so far is done."""
        self._events[event] = max(self._tails.get(stream, 0), self.host_ns + self.times.latency_ns)

    def wait(self, stream: int, event: int) -> None:
        """Make later work of `stream` start after the event's last record, if it has one."""
        reached = self._events.get(event, 0)
        if reached > self._tails.get(stream, 0):
            self._tails[stream] = reached

    # ---- what the host waits for

    def block(self, until_ns: int, return_ns: int, api: str, site: int) -> None:
        """The host waits until `until_ns` and takes `return_ns` more to come back."""
        start = self.host_ns
        self.host_ns = max(start, until_ns) + return_ns
        if self.recording is not None:
            self.recording.waits.append(WaitRow(start, self.host_ns, api, site))

    def stream_done_ns(self, stream: int) -> int:
        """When everything queued on `stream` is done."""
        return self._tails.get(stream, 0)

    def event_ns(self, event: int) -> int | None:
        """When the event's last record is reached; `None` where it was never recorded."""
        return self._events.get(event)

    def all_done_ns(self) -> int:
        """When everything queued on any stream is done."""
        return self._latest

    # ---- recording

    def start_recording(self) -> Recording:
        """Record what happens from now on."""
        self.recording = Recording(self.host_ns, self.times.latency_ns)
        return self.recording

    def stop_recording(self) -> Recording:
        """Stop recording. Raises `RuntimeError` where no recording was started."""
        recording, self.recording = self.recording, None
        if recording is None:
            raise RuntimeError("no recording was started")
        recording.end_ns = self.host_ns
        return recording

    def _queue(
        self, stream: int, duration_ns: int, kind: WorkKind, name: str, num_bytes: int
    ) -> None:
        times = self.times
        queued = self._queued.get(stream)
        if queued is None:
            queued = self._queued[stream] = deque(maxlen=times.limit)
        if len(queued) == times.limit and queued[0] > self.host_ns:
            self.host_ns = queued[0]
        host = self.host_ns
        tail = self._tails.get(stream, 0)
        start = max(host + times.latency_ns, tail + times.gap_ns)
        engine = self._engines.get(kind)
        if engine is not None:
            start = engine.reserve(start, duration_ns)
        end = start + duration_ns
        queued.append(start)
        self._tails[stream] = end
        if end > self._latest:
            self._latest = end
        if self._blocking:
            self.host_ns = end
        if self.recording is not None:
            self.recording.rows.append(DeviceRow(start, end, stream, kind, name, host, num_bytes))
