"""A trace as columns: one numpy array per field, times in integer nanoseconds, names as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
Bool = npt.NDArray[np.bool_]

UNKNOWN = -1
"""Stands in integer columns for a value that was not recorded."""

KERNEL, MEMCPY, MEMSET, CUDA_SYNC = 0, 1, 2, 3
"""Kinds of device rows. `CUDA_SYNC` rows describe syncs and keep nothing busy."""

K = TypeVar("K")


class Interner(dict[K, int]):
    """Gives each distinct key the next number."""

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self)
        return number


@dataclass(frozen=True, slots=True)
class Spans:
    """Host rows of one kind, in time order. All arrays have one entry a row."""

    start: Int64
    end: Int64
    name: Int32
    """Number in `Trace.names`."""
    thread: Int32
    """Number in `Trace.threads`."""

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Ops(Spans):
    """Dispatcher ops and autograd nodes."""

    sequence: Int64
    """Number that joins a backward node to its forward op; `UNKNOWN` where absent."""
    dims: Int32
    """Input shapes of copy ops, as a number in `Trace.shapes`."""
    stack: Int32
    """Python stack of the traces of 2021, as a number in `Trace.stacks`."""


@dataclass(frozen=True, slots=True)
class Calls(Spans):
    """Runtime and driver calls that queue work, wait, or manage memory."""

    correlation: Int64
    role: Int8


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """Kernels, copies, memsets and `cuda_sync` rows, in time order."""

    start: Int64
    end: Int64
    name: Int32
    kind: Int8
    stream: Int32
    """Number in `Trace.streams`."""
    correlation: Int64
    num_bytes: Int64

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: Bool) -> DeviceRows:
        """The rows for which `chosen` holds."""
        return DeviceRows(
            self.start[chosen],
            self.end[chosen],
            self.name[chosen],
            self.kind[chosen],
            self.stream[chosen],
            self.correlation[chosen],
            self.num_bytes[chosen],
        )


@dataclass(frozen=True, slots=True)
class Flows:
    """Arrows from a forward op to its backward node."""

    id: Int64
    time: Int64
    thread: Int32
    is_start: Bool


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace. Names, threads and streams are lists that the columns point into."""

    ops: Ops
    annotations: Spans
    python: Spans
    calls: Calls
    device: DeviceRows
    flows: Flows
    names: list[str]
    threads: list[tuple[int | str, int | str]]
    """(process, thread)."""
    streams: list[tuple[int | str, int | str]]
    """(device, stream)."""
    shapes: list[str]
    stacks: list[str]
    metadata: dict[str, Any]
    notes: tuple[str, ...] = ()
