"""What a store holds at one moment, and which of its runs a page shows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING

from dashboard.attached import Attached, RedactedAttached
from dashboard.facets import Facets, facets_of
from dashboard.redaction import redacted_run
from harness.record.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.filters import Filters
    from harness.record.records import RunRecord
    from harness.record.store import Problem


FRESH_S = 2.0
"""A snapshot is taken again when it is older, and older than `COST_FACTOR` times what it cost."""
COST_FACTOR = 5.0


@dataclass(frozen=True)
class Snapshot:
    """One listing of a store; runs newest first."""

    root: str
    records: Sequence[RunRecord]
    facets: tuple[Facets, ...]
    problems: tuple[Problem, ...]
    attached: Attached

    @property
    def name(self) -> str:
        """The store in a word: a page, or a picture of it, need not tell where folders lie."""
        return self.root if "://" in self.root else PurePath(self.root).name

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

    def kept(self, filters: Filters) -> list[Facets]:
        """The facts of the runs that the filters keep, newest first."""
        return [facets for facets in self.facets if filters.keep(facets)]

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
        attached=Attached(root),
    )


def redacted(found: Snapshot, public: frozenset[str] = frozenset()) -> Snapshot:
    """The same runs without what tells who ran them and where; `public` texts are kept."""
    originals = {
        (one := redacted_run(record, public)).id: (one, record) for record in found.records
    }
    records = tuple(one for one, _ in originals.values())
    return replace(
        found,
        records=records,
        facets=tuple(map(facets_of, records)),
        attached=RedactedAttached(
            found.root, {run_id: record for run_id, (_, record) in originals.items()}, public
        ),
    )


def only(found: Snapshot, records: Sequence[RunRecord]) -> Snapshot:
    """The snapshot as if the store held only these runs."""
    return replace(found, records=tuple(records), facets=tuple(map(facets_of, records)))


class SnapshotCache:
    """The newest snapshot of one store for every page and visitor; safe between threads."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._stale_at_s = 0.0

    def get(self) -> Snapshot:
        """A snapshot at most a few seconds old. Raises `StoreError`."""
        with self._lock:
            if self._snapshot is None or time.monotonic() >= self._stale_at_s:
                began_s = time.monotonic()
                self._snapshot = take_snapshot(self.root)
                ended_s = time.monotonic()
                self._stale_at_s = ended_s + max(FRESH_S, COST_FACTOR * (ended_s - began_s))
            return self._snapshot


@cache
def shared_snapshots(root: str) -> SnapshotCache:
    """The one cache of this process for a store: pages and routes look at the same snapshot."""
    return SnapshotCache(root)
