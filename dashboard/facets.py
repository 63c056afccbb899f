"""The few facts of a run that filters look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.tables.speaking import arm_voices, claim_voices, gpu_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import RunRecord, Source
    from harness.tables.speaking import Voice


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
    claim_voices: tuple[Voice, ...]
    """What the run says on published claims, and how it ranks there."""
    arm_voices: tuple[Voice, ...]
    """The same for its arms."""
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
        claim_voices=claim_voices(record),
        arm_voices=arm_voices(record),
        has_audits=bool(record.audited_arms),
        has_traces=bool(record.traced_arms),
    )


def run_titles(listed: Sequence[Facets]) -> dict[str, str]:
    """Run id -> how the run is named in a list; no two runs have one name."""
    names = {
        one.id: f"{one.created_utc[:16].replace('T', ' ')} · {one.model} · {one.gpu} · "
        f"{one.source} · {', '.join(one.fixes) or 'one arm'}"
        for one in listed
    }
    for tail in (6, None):
        times = Counter(names.values())
        names = {
            run: name if times[name] == 1 else f"{name} · {run if tail is None else run[-tail:]}"
            for run, name in names.items()
        }
    return names


def toggled(record: RunRecord) -> tuple[str, ...]:
    """Optimizations whose variant differs between two arms of the run."""
    names = dict.fromkeys(name for arm in record.arms for name in arm.variants)
    return tuple(name for name in names if len({arm.variants.get(name) for arm in record.arms}) > 1)
