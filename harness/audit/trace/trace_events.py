"""One event of a trace as decoded from JSON, with only the fields an audit reads."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import msgspec

Number = int | float
Label = int | str
Value = int | float | str
"""ROCm writes some numbers as text."""


class EventArgs(msgspec.Struct, gc=False):
    """The arguments that matter; their names differ between profiler versions."""

    correlation: Value | None = None
    device: Value | None = None
    stream: Value | None = None
    num_bytes: Value | None = msgspec.field(default=None, name="bytes")
    sequence: Value | None = msgspec.field(default=None, name="Sequence number")
    input_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    """JSON text of the input shapes; empty where they were not recorded."""
    call_stack: str | None = msgspec.field(default=None, name="Call stack")
    """Frames separated by `;`, innermost first, in the traces of 2021."""


class Event(msgspec.Struct, gc=False):
    """One event. Times are microseconds, as written."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Label | None = None
    tid: Label | None = None
    ts: Number | None = None
    dur: Number | None = None
    id: Label | None = None
    args: EventArgs | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """As `Event`, for time stamps that a double cannot hold to the nanosecond."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Label | None = None
    tid: Label | None = None
    ts: Decimal | None = None
    dur: Number | None = None
    id: Label | None = None
    args: EventArgs | None = None


AnyEvent = Event | ExactEvent

LARGEST_EXACT_US = float(2**43)
"""Below it a double holds microseconds with three decimals exactly."""


def _number(value: Any) -> Number | None:
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _label(value: Any) -> Label | None:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    # Lone surrogates pass the tolerant parser but cannot be written out again.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def coerce_event(text: bytes) -> Event | None:
    """Read one damaged or foreign event as well as it can be; `None` if it is none."""
    try:
        raw = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    given = raw.get("args")
    args = given if isinstance(given, dict) else {}
    dims = args.get("Input Dims")
    try:
        raw_dims = msgspec.Raw() if dims is None else msgspec.Raw(msgspec.json.encode(dims))
    except (ValueError, RecursionError, UnicodeError, msgspec.MsgspecError):
        raw_dims = msgspec.Raw()
    return Event(
        ph=_text(raw.get("ph")),
        cat=_text(raw.get("cat")),
        name=_text(raw.get("name")),
        pid=_label(raw.get("pid")),
        tid=_label(raw.get("tid")),
        ts=_number(raw.get("ts")),
        dur=_number(raw.get("dur")),
        id=_label(raw.get("id")),
        args=EventArgs(
            correlation=_number(args.get("correlation")),
            device=_label(args.get("device")),
            stream=_label(args.get("stream")),
            num_bytes=_number(args.get("bytes")),
            sequence=_number(args.get("Sequence number")),
            input_dims=raw_dims,
            call_stack=_text(args.get("Call stack")),
        ),
    )
