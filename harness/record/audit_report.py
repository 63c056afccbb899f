"""The one report that every audit gives, whatever it was read from: emulator, GPU or trace file.

`to_json` is the frozen contract that other tools read; field names do not change within a schema.
A figure that is unknown is `None`, never 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.boundary.foreign_text import json_text
from harness.record.finding import Finding
from harness.record.records import Record
from harness.record.sync_kinds import SyncKind
from harness.record.trace_details import SmallKernels, TraceDetails

AUDIT_SCHEMA_VERSION = 1

AuditSource = Literal["emulated", "live", "trace"]
Times = Literal["measured", "modelled"]
AuditPhase = Literal["data", "forward", "recompute", "backward", "optimizer", "unknown"]


class Site(Record, frozen=True, kw_only=True):
    """One place that made the host wait: everything with the same line, op, kind and phase."""

    op: str
    """Dispatcher name (`aten::_local_scalar_dense`), or the API where no op is known."""
    kind: SyncKind
    phase: AuditPhase
    count_per_step: float
    """Calls that wait, per step."""
    syncs_per_call: float
    file: str | None = None
    line: int | None = None
    code: str | None = None
    """Source text of the line."""
    function: str | None = None
    module: str | None = None
    """Module path, such as `model.layers.3.mlp.experts`; `*` stands for a repeated index."""
    library: str | None = None
    """Library frame (`file:line function`) where the cause lies in a library."""
    blocked_ms: float | None = None
    """Host time spent waiting, per step."""
    exposed_ms: float | None = None
    """Device idle time because of it, per step."""
    growth: str | None = None
    """How the count grows with L layers and E_hit experts hit in a layer: `L*(1 + 7*E_hit)`."""
    remedy: str | None = None
    finding: str | None = None
    """Kind of the finding of this report that speaks about it, such as `polling-loop`; `None`
    before findings are made, and in reports of older versions."""
    intended: str | None = None
    """Reason given with `gapless.allow_sync`; such a site is listed apart."""
    bytes_per_call: int | None = None
    unread_per_step: float | None = None
    """For a copy: calls whose result was freed within the step before anything read it."""

    @property
    def name(self) -> str:
        """What tables and advice call it: the kind of its finding."""
        return self.finding or self.kind.finding


class RedundantGroup(Record, frozen=True, kw_only=True):
    """The same value computed again."""

    size: int
    """How many times it was computed."""
    first: str
    """`file:line` of the first."""
    repeats: tuple[str, ...]
    """`file:line` of the others, each once."""
    ops: tuple[str, ...]
    """The chain of ops that computes it."""
    syncs: float = 0
    """Syncs in the repeats, per step."""
    launches: float | None = None
    """Ops in the repeats, per step."""
    bytes_per_step: int | None = None
    module: str | None = None
    across_steps: bool = False


class CopySummary(Record, frozen=True, kw_only=True):
    """Copies of one direction and memory kind."""

    direction: Literal["h2d", "d2h", "d2d", "p2p"]
    memory: Literal["pinned", "pageable", "device", "unknown"]
    blocking: bool | None
    count_per_step: float
    bytes_per_step: int | None = None
    duration_ms: float | None = None
    bandwidth_gb_per_s: float | None = None


class AuditTimeline(Record, frozen=True, kw_only=True):
    """The device over the audited span; every field is `None` where there is no clock."""

    span_ms: float | None = None
    busy_ms: float | None = None
    idle_ms: float | None = None
    overlap: float | None = None
    """Share of copy time with a compute kernel running, 0 to 1."""
    communication_hidden: float | None = None
    idle_blocked_host_ms: float | None = None
    idle_slow_host_ms: float | None = None
    idle_communication_ms: float | None = None
    idle_other_ms: float | None = None


class SiteShare(Record, frozen=True, kw_only=True):
    """What one site costs on one GPU, by the virtual clock."""

    place: str
    """`file:line`, or the op where no line is known."""
    gpu: str
    step_ms: float
    """Modelled step as it is."""
    without_ms: float
    """Modelled step if this site did not wait."""

    @property
    def share(self) -> float:
        """Part of the step that the site costs, 0 to 1."""
        return 1 - self.without_ms / self.step_ms if self.step_ms else 0.0


class ModelledStep(Record, frozen=True, kw_only=True):
    """The audited step by the virtual clock. Modelled, not measured."""

    gpu: str
    step_ms: float
    """One step from an idle device until all its work is done."""
    ceiling_ms: float
    """The same without any sync and with all copies between host and device hidden."""
    peak_bytes: int | None = None
    small_kernels: SmallKernels | None = None
    without: tuple[str, ...] = ()
    """Sites that the user asked to leave out."""
    without_ms: float | None = None
    """The step with all of them left out."""
    shares: tuple[SiteShare, ...] = ()
    """The costliest sites on each GPU that was asked for."""


class Race(Record, frozen=True, kw_only=True):
    """Two uses of one piece of device memory that nothing orders."""

    kind: Literal["read before write", "write before read", "write before write"]
    """What may happen: in a `read before write` the read sees what is not written yet."""
    first: str
    """`file:line` of the use that was queued first, its op and stream."""
    second: str
    count: int
    """How often this pair of places raced."""


class AuditReport(Record, frozen=True, kw_only=True):
    """What an audit found."""

    schema: int = AUDIT_SCHEMA_VERSION
    source: AuditSource
    target: str
    times: Times | None = None
    """Whether a clock gave the times or the emulator's model of one; never `None` once made. A
    trace file may hold either."""
    device: str
    """What was audited on: `emulated H100 (shapes only)`, `NVIDIA A100`, ..."""
    steps: int | None
    """Steps audited; `None` where a trace marks none: then `per_step` figures are per trace."""
    syncs_per_step: float | None
    new_syncs_per_step: float | None = None
    """Those that a baseline lacks, whose sites alone are then listed; `None` without a baseline."""
    sites: tuple[Site, ...] = ()
    intended: tuple[Site, ...] = ()
    redundant_groups: tuple[RedundantGroup, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What to change, most costly first."""
    repeated_across_steps: tuple[RedundantGroup, ...] = ()
    """Work on buffers and constants alone, repeated in every step; emulated audits only."""
    copies: tuple[CopySummary, ...] = ()
    api_calls: dict[str, int] = msgspec.field(default_factory=dict)
    """Synchronise and blocking-copy calls by API name over the whole trace, the profiler's own
    included; empty for an emulated audit."""
    profiler_own: int | None = None
    timeline: AuditTimeline = AuditTimeline()
    values: Literal["values", "shapes"] | None = None
    """Whether an emulated audit computed real values or shapes only."""
    modelled: ModelledStep | None = None
    """The step by the virtual clock; `None` unless the audit was emulated."""
    races: tuple[Race, ...] = ()
    """Empty unless the audit was asked to look for races."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that the file is truncated or `compile` was run eagerly."""
    trace: TraceDetails | None = None
    """Further tables of an audit from a trace or live; `None` for an emulated one."""
    unjudged: tuple[str, ...] = ()
    """What could not be judged, one sentence each."""

    def __post_init__(self) -> None:
        if self.times is None:
            times: Times = "modelled" if self.source == "emulated" else "measured"
            msgspec.structs.force_setattr(self, "times", times)


def to_json(report: AuditReport) -> str:
    """The report as one JSON document."""
    return json_text(report)


def from_json(text: str | bytes) -> AuditReport:
    """Read what `to_json` wrote. Raises `msgspec.DecodeError` on anything else."""
    return msgspec.json.decode(text, type=AuditReport)
