"""What a store holds at one moment, with the few facts of each run that filters look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.filters import Filters
    from harness.records import RunRecord, Source
    from harness.store import Problem


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


@dataclass(frozen=True)
class Snapshot:
    """One listing of a store; runs newest first."""

    root: str
    records: Sequence[RunRecord]
    facets: tuple[Facets, ...]
    problems: tuple[Problem, ...]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {facets.id: position for position, facets in enumerate(self.facets)}

    def find(self, run_id: str) -> RunRecord | None:
        """The run with this id, without its samples; `None` where the store has none."""
        position = self._positions.get(run_id)
        return None if position is None else self.records[position]

    def select(self, filters: Filters, limit: int | None = None) -> list[RunRecord]:
        """The newest runs that the filters keep; only those are decoded."""
        return [self.records[position] for position in self.positions(filters)[:limit]]

    def positions(self, filters: Filters) -> list[int]:
        """Where the kept runs stand in `facets` and `records`."""
        return [n for n, facets in enumerate(self.facets) if filters.keep(facets)]


def take_snapshot(root: str) -> Snapshot:
    """List a store. Raises `StoreError` where it cannot be listed."""
    listing = Store(root).listing()
    return Snapshot(
        root=root,
        records=listing.records,
        facets=tuple(facets_of(record) for record in listing.records),
        problems=listing.problems,
    )
