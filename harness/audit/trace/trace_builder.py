"""Builds the columns of a trace from its events, a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.audit.trace.columns import (
    CUDA_SYNC,
    KERNEL,
    MEMCPY,
    MEMSET,
    UNKNOWN,
    Bool,
    Calls,
    DeviceRows,
    Flows,
    Int32,
    Int64,
    Interner,
    Ops,
    Spans,
    Trace,
)
from harness.audit.trace.event_values import (
    INVALID,
    LARGEST_DURATION_NS,
    integers,
    nanoseconds,
    tidy_label,
)
from harness.audit.trace.runtime_apis import api_role
from harness.boundary.foreign_text import visible_name
from harness.counts import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from harness.audit.trace.trace_events import AnyEvent

_BUILTIN = "<built-in "
_COPY_OPS = frozenset({"aten::to", "aten::_to_copy", "aten::copy_"})
_MAX_STACKS = 20_000

_HOST_OPS = ("cpu_op", "Operator")
_ANNOTATIONS = ("user_annotation",)
_RUNTIME = ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "hip_driver")
_DEVICE = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "cuda_sync": CUDA_SYNC,
}


@dataclass(slots=True)
class _Table:
    """Columns that grow by one array a batch."""

    parts: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)
    num_rows: int = 0

    def add(self, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            self.parts.setdefault(name, []).append(values)
        self.num_rows += len(columns["start"])

    def column(self, name: str, dtype: type[Any]) -> npt.NDArray[Any]:
        parts = self.parts.pop(name, None)
        return np.empty(0, dtype) if not parts else np.concatenate(parts, dtype=dtype)


@dataclass(slots=True)
class TraceBuilder:
    """Takes batches of events and keeps what an audit needs."""

    max_events: int
    num_damaged: int = 0
    num_negative: int = 0
    full: bool = False
    names: Interner[str | None] = field(default_factory=Interner)
    _threads: Interner[tuple[Any, Any]] = field(default_factory=Interner)
    _streams: Interner[tuple[Any, Any]] = field(default_factory=Interner)
    _shapes: Interner[bytes] = field(default_factory=Interner)
    _stacks: Interner[str] = field(default_factory=Interner)
    _roles: dict[str | None, int] = field(default_factory=dict)
    _ops: _Table = field(default_factory=_Table)
    _annotations: _Table = field(default_factory=_Table)
    _python: _Table = field(default_factory=_Table)
    _calls: _Table = field(default_factory=_Table)
    _device: _Table = field(default_factory=_Table)
    _flows: _Table = field(default_factory=_Table)

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Sort a batch into its tables; events that carry no figure are dropped here."""
        kept: dict[str, list[AnyEvent]] = {}
        put: dict[str | None, Callable[[AnyEvent], None]] = {}
        for cat in (*_HOST_OPS, *_ANNOTATIONS, *_RUNTIME, *_DEVICE, "python_function", "fwdbwd"):
            kept[cat] = []
            put[cat] = kept[cat].append
        for event in events:
            append = put.get(event.cat)
            if append is not None:
                append(event)
        for cat in _HOST_OPS:
            self._add_ops(kept[cat])
        for cat in _ANNOTATIONS:
            self._add_spans(self._annotations, kept[cat])
        self._add_spans(
            self._python,
            [e for e in kept["python_function"] if (e.name or _BUILTIN)[:10] != _BUILTIN],
        )
        for cat in _RUNTIME:
            self._add_calls(kept[cat])
        for cat, kind in _DEVICE.items():
            self._add_device(kept[cat], kind)
        self._add_flows(kept["fwdbwd"])
        tables = (self._ops, self._annotations, self._python, self._calls, self._device)
        self.full = sum(table.num_rows for table in tables) >= self.max_events

    def _times(self, events: Sequence[AnyEvent]) -> tuple[Int64, Int64, Bool]:
        """Start, end, and which rows are sound."""
        start = nanoseconds([e.ts for e in events])
        duration = nanoseconds([e.dur or 0 for e in events], LARGEST_DURATION_NS)
        sound = (start != INVALID) & (duration != INVALID)
        self.num_damaged += int(len(sound) - sound.sum())
        negative = sound & (duration < 0)
        self.num_negative += int(negative.sum())
        end = start + np.where(sound, np.maximum(duration, 0), 0)
        return start, end, sound

    def _numbers(self, events: Sequence[AnyEvent]) -> dict[str, npt.NDArray[Any]]:
        names, threads = self.names, self._threads
        return {
            "name": np.array([names[e.name] for e in events], dtype=np.int32),
            "thread": np.array([threads[e.pid, e.tid] for e in events], dtype=np.int32),
        }

    @staticmethod
    def _store(table: _Table, sound: Bool, columns: dict[str, npt.NDArray[Any]]) -> None:
        if not sound.all():
            columns = {name: values[sound] for name, values in columns.items()}
        table.add(**columns)

    def _add_spans(self, table: _Table, events: Sequence[AnyEvent]) -> None:
        events = [e for e in events if e.ph == "X"]
        if events:
            start, end, sound = self._times(events)
            self._store(table, sound, {"start": start, "end": end, **self._numbers(events)})

    def _add_ops(self, events: Sequence[AnyEvent]) -> None:
        events = [e for e in events if e.ph == "X"]
        if not events:
            return
        start, end, sound = self._times(events)
        sequence: list[Any] = []
        dims: list[int] = []
        stack: list[int] = []
        for event in events:
            args = event.args
            if args is None:
                sequence.append(UNKNOWN)
                dims.append(UNKNOWN)
                stack.append(UNKNOWN)
                continue
            sequence.append(UNKNOWN if args.sequence is None else args.sequence)
            copies = event.name in _COPY_OPS
            dims.append(self._shapes[bytes(args.input_dims)] if copies else UNKNOWN)
            stack.append(self._stack(args.call_stack) if args.call_stack else UNKNOWN)
        columns: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "end": end,
            **self._numbers(events),
            "sequence": integers(sequence),
            "dims": np.array(dims, dtype=np.int32),
            "stack": np.array(stack, dtype=np.int32),
        }
        self._store(self._ops, sound, columns)

    def _stack(self, text: str) -> int:
        if text in self._stacks or len(self._stacks) < _MAX_STACKS:
            return self._stacks[text]
        return UNKNOWN

    def _role(self, event: AnyEvent) -> int:
        role = self._roles.get(event.name)
        if role is None:
            role = self._roles[event.name] = int(api_role(event.name or ""))
        return role

    def _add_calls(self, events: Sequence[AnyEvent]) -> None:
        events = [e for e in events if self._role(e) and e.ph == "X"]
        if not events:
            return
        start, end, sound = self._times(events)
        correlation = [e.args.correlation if e.args is not None else None for e in events]
        columns: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "end": end,
            **self._numbers(events),
            "correlation": integers(correlation),
            "role": np.array([self._roles[e.name] for e in events], dtype=np.int8),
        }
        self._store(self._calls, sound, columns)

    def _add_device(self, events: Sequence[AnyEvent], kind: int) -> None:
        events = [e for e in events if e.ph == "X"]
        if not events:
            return
        start, end, sound = self._times(events)
        names, streams = self.names, self._streams
        places, correlation, num_bytes = [], [], []
        for event in events:
            args = event.args
            device = event.pid if args is None or args.device is None else args.device
            stream = event.tid if args is None or args.stream is None else args.stream
            places.append(streams[device, stream])
            correlation.append(None if args is None else args.correlation)
            num_bytes.append(None if args is None else args.num_bytes)
        columns: dict[str, npt.NDArray[Any]] = {
            "start": start,
            "end": end,
            "name": np.array([names[e.name] for e in events], dtype=np.int32),
            "kind": np.full(len(events), kind, dtype=np.int8),
            "stream": np.array(places, dtype=np.int32),
            "correlation": integers(correlation),
            "num_bytes": integers(num_bytes),
        }
        self._store(self._device, sound, columns)

    def _add_flows(self, events: Sequence[AnyEvent]) -> None:
        events = [e for e in events if e.ph in ("s", "f")]
        if not events:
            return
        time = nanoseconds([e.ts for e in events])
        columns: dict[str, npt.NDArray[Any]] = {
            "start": time,
            "id": integers([e.id for e in events]),
            "thread": np.array([self._threads[e.pid, e.tid] for e in events], dtype=np.int32),
            "is_start": np.array([e.ph == "s" for e in events], dtype=np.bool_),
        }
        self._store(self._flows, time != INVALID, columns)

    # --- the finished trace ---

    def build(self, metadata: dict[str, Any], notes: Sequence[str]) -> Trace:
        """The trace in time order. The builder is empty afterwards."""
        threads, thread_of = _tidy(self._threads)
        streams, stream_of = _tidy(self._streams)
        said = list(notes)
        if self.num_damaged:
            said.append(f"left out {counted(self.num_damaged, 'event')} without a usable time")
        if self.num_negative:
            said.append(
                f"{counted(self.num_negative, 'event')} of negative duration read as instantaneous"
            )
        if self.full:
            said.append(f"only the first {self.max_events:,} events that carry figures were read")
        return Trace(
            ops=Ops(
                **_ordered(self._ops, thread_of, sequence=np.int64, dims=np.int32, stack=np.int32)
            ),
            annotations=Spans(**_ordered(self._annotations, thread_of)),
            python=Spans(**_ordered(self._python, thread_of)),
            calls=Calls(**_ordered(self._calls, thread_of, correlation=np.int64, role=np.int8)),
            device=_device_rows(self._device, stream_of),
            flows=Flows(
                time=self._flows.column("start", np.int64),
                id=self._flows.column("id", np.int64),
                thread=thread_of[self._flows.column("thread", np.int32)],
                is_start=self._flows.column("is_start", np.bool_),
            ),
            names=["" if name is None else visible_name(name) for name in self.names],
            threads=threads,
            streams=streams,
            shapes=[text.decode("utf-8", "replace") for text in self._shapes],
            stacks=[";".join(map(visible_name, stack.split(";"))) for stack in self._stacks],
            metadata=metadata,
            notes=tuple(said),
        )


def _tidy(raw: Interner[tuple[Any, Any]]) -> tuple[list[tuple[int | str, int | str]], Int32]:
    """The labels in one spelling, and for each number given so far its final number."""
    tidy: Interner[tuple[int | str, int | str]] = Interner()
    final = [tidy[tidy_label(first), tidy_label(second)] for first, second in raw]
    return list(tidy), np.array(final, dtype=np.int32)


def _time_order(start: Int64, end: Int64) -> Int64:
    """Rows by start; of two that start together the longer comes first, as it encloses."""
    # Two stable sorts use less memory than one lexsort over both keys.
    order = np.argsort(-end, kind="stable")
    return order[np.argsort(start[order], kind="stable")]


def _ordered(table: _Table, thread_of: Int32, **extra: type[Any]) -> dict[str, npt.NDArray[Any]]:
    start = table.column("start", np.int64)
    end = table.column("end", np.int64)
    order = _time_order(start, end)
    columns: dict[str, npt.NDArray[Any]] = {
        "start": start[order],
        "end": end[order],
        "name": table.column("name", np.int32)[order],
        "thread": thread_of[table.column("thread", np.int32)[order]],
    }
    for name, dtype in extra.items():
        columns[name] = table.column(name, dtype)[order]
    return columns


def _device_rows(table: _Table, stream_of: Int32) -> DeviceRows:
    start = table.column("start", np.int64)
    end = table.column("end", np.int64)
    order = _time_order(start, end)
    return DeviceRows(
        start=start[order],
        end=end[order],
        name=table.column("name", np.int32)[order],
        kind=table.column("kind", np.int8)[order],
        stream=stream_of[table.column("stream", np.int32)[order]],
        correlation=table.column("correlation", np.int64)[order],
        num_bytes=table.column("num_bytes", np.int64)[order],
    )
