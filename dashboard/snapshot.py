"""What a store holds at one moment, and which of its runs a page shows."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING

from dashboard.facets import Facets, facets_of
from harness.record.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.filters import Filters
    from harness.record.records import RunRecord
    from harness.record.store import Problem


SPEAKING_RUNS = 3
"""Newest runs looked at for one claim, source and GPU, since a run can lack a figure."""
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

    def speaking(self, filters: Filters) -> list[RunRecord]:
        """The runs that the claims are told from: the newest few of each claim, source and GPU."""
        seen: Counter[tuple[str, str, str]] = Counter()
        kept = []
        for position in self.positions(filters):
            facets = self.facets[position]
            keys = [(claim, facets.source, facets.gpu) for claim in facets.claims]
            if any(seen[key] < SPEAKING_RUNS for key in keys):
                kept.append(self.records[position])
            seen.update(keys)
        return kept

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
