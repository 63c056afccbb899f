"""Finds uses of one piece of memory that nothing orders: what a missing `wait_event` leaves behind.

Each stream and the host keep a vector clock. Work on a stream knows all that its stream was told to
wait for, and all that the host had waited for when it queued the work. Two uses of overlapping
bytes, one of them a write, race where the later one does not know of the earlier. Whether the times
happen to work out does not matter: on a real device they may not.

Not seen: host code that reads a buffer before its copy has arrived, and memory that the allocator
gives away while another stream still uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.clock.op_work import runs_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness.emulator.tensors.layouts import LayoutTable
    from harness.emulator.tensors.op_events import Access, OpEvent
    from harness.emulator.tensors.stream_book import StreamAction

RaceKind = Literal["read before write", "write before read", "write before write"]
Clock = dict[int, int]
"""Stream -> number of the last work on it that is known to be done."""

_HOST_MEMORY = "host"


class Use(NamedTuple):
    """One access by one piece of work."""

    stream: int
    number: int
    """Position of the work on its stream."""
    first: int
    last: int
    """Bytes from `first` to before `last`."""
    op: str
    place: Any


class FoundRace(NamedTuple):
    """Two uses that nothing orders, in the order in which they were queued."""

    kind: RaceKind
    earlier: Use
    later: Use


@dataclass
class _Memory:
    """What was done to one storage and still matters."""

    writes: list[Use] = field(default_factory=list)
    reads: list[Use] = field(default_factory=list)


class RaceDetector:
    """An observer of every op that collects races; `place` says where the present op stands."""

    wants_every_op = True

    def __init__(self, layouts: LayoutTable, place: Callable[[], Any]) -> None:
        self._bytes_of = lru_cache(maxsize=None)(layouts.byte_range)
        self._place = place
        self._known: dict[int, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}
        self._counts: dict[int, int] = {}
        self._memory: dict[tuple[str, int], _Memory] = {}
        self._awaited: StreamAction | None = None
        self.races: list[FoundRace] = []

    def on_event(self, event: OpEvent) -> None:
        """One op: check its accesses, then let its waits order what follows."""
        if event.op.startswith("cuda"):
            self._synchronize(event.op)
            return
        if event.copy is not None or not (event.signature and runs_nothing(event.signature[0])):
            self._run(event)
        if any(wait.syncs for wait in event.waits):
            _join(self._host, self._clock(event.stream))

    def on_stream_action(self, action: StreamAction) -> None:
        """A call that orders streams."""
        if action.kind == "record" and action.event is not None:
            self._events[action.event] = dict(self._clock(action.stream))
        elif action.kind == "wait" and action.event is not None:
            _join(self._clock(action.stream), self._events.get(action.event, {}))
        elif action.kind.startswith("synchronize"):
            self._awaited = action

    def _synchronize(self, api: str) -> None:
        action, self._awaited = self._awaited, None
        if action is not None and action.kind == "synchronize_event" and action.event is not None:
            _join(self._host, self._events.get(action.event, {}))
        elif action is not None and action.kind == "synchronize_stream":
            _join(self._host, self._clock(action.stream))
        else:
            for stream in list(self._known):
                _join(self._host, self._clock(stream))

    def _run(self, event: OpEvent) -> None:
        stream = event.stream
        number = self._counts[stream] = self._counts.get(stream, 0) + 1
        clock = self._clock(stream)
        _join(clock, self._host)
        clock[stream] = number
        place = self._place()
        reads = [*self._uses(event, event.reads, place)]
        writes = [*self._uses(event, event.writes, place)]
        copy = event.copy
        if copy is not None and copy.host_storage is not None:
            use = Use(stream, number, 0, copy.num_bytes, event.op, place)
            host_side = ((_HOST_MEMORY, copy.host_storage), use)
            (reads if copy.direction == "h2d" else writes).append(host_side)
        for key, use in reads:
            memory = self._memory.setdefault(key, _Memory())
            self._check("read before write", memory.writes, use, clock)
        for key, use in writes:
            memory = self._memory.setdefault(key, _Memory())
            self._check("write before read", memory.reads, use, clock)
            self._check("write before write", memory.writes, use, clock)
        for key, use in reads:
            _remember(self._memory[key].reads, use)
        for key, use in writes:
            memory = self._memory[key]
            memory.reads = [old for old in memory.reads if not _covers(use, old)]
            memory.writes = [old for old in memory.writes if not _covers(use, old)]
            memory.writes.append(use)

    def _uses(
        self, event: OpEvent, accesses: Iterable[Access], place: Any
    ) -> Iterable[tuple[tuple[str, int], Use]]:
        number = self._counts[event.stream]
        for access in accesses:
            first, last = self._bytes_of(access.layout)
            if last > first:
                key = ("device", access.storage)
                yield key, Use(event.stream, number, first, last, event.op, place)

    def _check(self, kind: RaceKind, earlier: Iterable[Use], later: Use, clock: Clock) -> None:
        for use in earlier:
            unordered = use.stream != later.stream and clock.get(use.stream, 0) < use.number
            if unordered and use.first < later.last and later.first < use.last:
                self.races.append(FoundRace(kind, use, later))

    def _clock(self, stream: int) -> Clock:
        return self._known.setdefault(stream, {})


def _join(clock: Clock, other: Clock) -> None:
    for stream, number in other.items():
        if number > clock.get(stream, 0):
            clock[stream] = number


def _covers(new: Use, old: Use) -> bool:
    return new.first <= old.first and old.last <= new.last


def _remember(uses: list[Use], use: Use) -> None:
    """Add a read; an older one of the same bytes on the same stream says no more."""
    uses[:] = [old for old in uses if not (old.stream == use.stream and _covers(use, old))]
    uses.append(use)
