"""What the child reports to its parent while it measures: one JSON line for each event.

A line is written as soon as there is something to report, so that a child that is killed loses at
most one line.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.record.attachments import ArmAudit
from harness.record.records import (
    Energy,
    Machine,
    MemoryPeak,
    Overlap,
    Parity,
    Record,
    Sample,
    ScenarioRecord,
    Source,
    Steadiness,
    SyncCount,
)

StageName = Literal["start", "build", "warm-up", "parity", "timing", "memory", "syncs", "energy"]
EndCause = Literal["precision", "budget", "max-blocks", "stopped", "no-arm-left"]


class Event(Record, frozen=True, kw_only=True, tag=True, tag_field="event"):
    """Base of everything that crosses the pipe."""


class Stage(Event, frozen=True, kw_only=True):
    """What the child does next. The last one is what it was doing when it ended."""

    name: StageName
    arm: str | None = None
    block: int | None = None
    remaining_s: float | None = None
    """Seconds until the run ends, as the child estimates."""


class MachineSeen(Event, frozen=True, kw_only=True):
    """Where the child runs."""

    machine: Machine


class SteadinessSeen(Event, frozen=True, kw_only=True):
    """How steady the machine was during the timed blocks."""

    steadiness: Steadiness


class Built(Event, frozen=True, kw_only=True):
    """The workload is built."""

    scenario: ScenarioRecord
    num_tokens: int
    source: Source


class Timed(Event, frozen=True, kw_only=True):
    """One step of one arm."""

    samples: tuple[Sample, ...]


class ParityChecked(Event, frozen=True, kw_only=True):
    """One arm against the baseline."""

    parity: tuple[Parity, ...]


class MemoryMeasured(Event, frozen=True, kw_only=True):
    """Peaks of one arm."""

    memory: tuple[MemoryPeak, ...]


class SyncsCounted(Event, frozen=True, kw_only=True):
    """Syncs and overlap of one arm."""

    syncs: tuple[SyncCount, ...]
    overlap: tuple[Overlap, ...] = ()
    audit: ArmAudit | None = None
    """The sites behind the counts, where the probe knows them."""


class Traced(Event, frozen=True, kw_only=True):
    """The timeline of one arm's inspected steps."""

    arm: str
    content: bytes
    """Gzipped Kineto trace."""


class EnergyMeasured(Event, frozen=True, kw_only=True):
    """Energy of one arm."""

    energy: Energy


class Noted(Event, frozen=True, kw_only=True):
    """A remark for the record."""

    text: str


class Ended(Event, frozen=True, kw_only=True):
    """The child ran to its end; `cause` is why the timed blocks stopped."""

    cause: EndCause


class Failed(Event, frozen=True, kw_only=True):
    """An exception ended the child. `usage`: what was asked for cannot be done as asked."""

    kind: Literal["usage", "memory", "error"]
    message: str
    """One sentence without the place, which the last `Stage` names."""


AnyEvent = (
    Stage
    | MachineSeen
    | SteadinessSeen
    | Built
    | Timed
    | ParityChecked
    | MemoryMeasured
    | SyncsCounted
    | Traced
    | EnergyMeasured
    | Noted
    | Ended
    | Failed
)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(AnyEvent).decode


class Progress(Record, frozen=True, kw_only=True):
    """Where a run stands, for a progress bar."""

    stage: StageName
    arm: str | None
    block: int | None
    num_samples: int
    elapsed_s: float
    remaining_s: float | None
