"""The few facts of a run that filters look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.record.records import RunRecord, Source


@dataclass(frozen=True, slots=True)
class Facets:
    """What a run can be chosen by."""

    id: str
    created_utc: str
    scenario: str
    model: str
    gpu: str
    """Name of the GPU as its driver gives it; the short device name where there is none."""
    fixes: tuple[str, ...]
    """Optimizations that an arm of the run toggles."""
    source: Source
    claims: tuple[str, ...]
    """Ids of the published claims that the run speaks to."""
    has_audits: bool
    has_traces: bool


def facets_of(record: RunRecord) -> Facets:
    """The facts of one run."""
    return Facets(
        id=record.id,
        created_utc=record.created_utc,
        scenario=record.scenario.name,
        model=record.scenario.model,
        gpu=gpu_name(record),
        fixes=toggled(record),
        source=record.source,
        claims=tuple(claim.id for claim in record.claims),
        has_audits=bool(record.audited_arms),
        has_traces=bool(record.traced_arms),
    )


def gpu_name(record: RunRecord) -> str:
    """`NVIDIA H200` or `cpu` where it was measured, `B200` where it was modelled."""
    machine = record.machine
    if record.source == "modelled":
        return machine.device.removeprefix("emulated-").upper()
    return machine.gpus[0].name if machine.gpus else machine.device


def toggled(record: RunRecord) -> tuple[str, ...]:
    """Optimizations whose variant differs between two arms of the run."""
    names = dict.fromkeys(name for arm in record.arms for name in arm.variants)
    return tuple(name for name in names if len({arm.variants.get(name) for arm in record.arms}) > 1)
