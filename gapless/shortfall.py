"""What a sweep over the published claims did not reach, and what to do about it. Pure functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.counts import counted
from harness.record.records import Record
from harness.stats import MIN_BLOCKS_TO_STOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.record.records import RunRecord
    from harness.tables.claim_rows import ReproduceRow

_BESIDE_BLOCKS = 2.0
"""Time of a run over that of its timed blocks: build, warm-up, parity, memory and syncs."""
_LEAST_S = 60
"""For one claim, where nothing is known of its pace."""


class Shortfall(Record, frozen=True, kw_only=True):
    """One row without a verdict."""

    claim: str
    blocks: int
    """Timed blocks; 0 where the row was not measured."""
    why: str


def shortfalls(rows: Sequence[ReproduceRow]) -> tuple[Shortfall, ...]:
    """The rows that were not measured, or too little for a verdict, in their order."""
    return tuple(filter(None, map(_shortfall, rows)))


def _shortfall(row: ReproduceRow) -> Shortfall | None:
    measured = row.measured
    if measured is None:
        return Shortfall(claim=row.claim.id, blocks=0, why=row.needs or "Not measured.")
    if measured.source != "measured" or measured.verdict != "undecided":
        return None
    blocks = measured.num_blocks
    why = "The interval allows more than one verdict."
    if blocks == 1:
        why = "One block gives no interval."
    elif blocks < MIN_BLOCKS_TO_STOP:
        why = f"{blocks} blocks are too few; {MIN_BLOCKS_TO_STOP} are wanted."
    return Shortfall(claim=row.claim.id, blocks=blocks, why=why)


def below(rows: Sequence[ReproduceRow], min_blocks: int) -> tuple[str, ...]:
    """The claims with fewer timed blocks than `min_blocks`."""
    return tuple(
        row.claim.id
        for row in rows
        if (0 if row.measured is None else row.measured.num_blocks) < min_blocks
    )


def told(missed: Sequence[Shortfall], num_rows: int) -> Iterator[str]:
    """The same for people: how many of `num_rows` rows, then which, and why."""
    if not missed:
        return
    have = "has" if len(missed) == 1 else "have"
    yield f"Not reached: {len(missed)} of {counted(num_rows, 'row')} {have} no verdict."
    for why in dict.fromkeys(one.why for one in missed):
        claims = ", ".join(one.claim for one in missed if one.why == why)
        yield f"  {claims}: {why}"


def seconds_for(missed: Sequence[Shortfall], records: Sequence[RunRecord]) -> int:
    """Seconds in which the claims that were missed get enough blocks, at the pace seen here."""
    claims = {one.claim for one in missed}
    paces = {
        record.id: _block_s(record)
        for record in records
        if any(claim.id in claims for claim in record.claims)
    }
    known = {claim.id for record in records for claim in record.claims if record.id in paces}
    unseen = len(claims - known)
    wanted = sum(
        max(_LEAST_S, _BESIDE_BLOCKS * MIN_BLOCKS_TO_STOP * pace_s) for pace_s in paces.values()
    )
    return 10 * math.ceil((wanted + _LEAST_S * unseen) / 10)


def _block_s(record: RunRecord) -> float:
    """One step of each arm, in seconds; 0 where none was timed."""
    whole = [one for one in record.comparisons if one.phase == "batch"]
    baseline_ms = max((one.baseline_median_ms for one in whole), default=0.0)
    return (baseline_ms + sum(one.arm_median_ms for one in whole)) / 1e3
