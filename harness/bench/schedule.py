"""Which arm runs when, and when to stop. Pure: no clock, no torch."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.bench.child_events import EndCause

_RECHECK_GROWTH = 1.15
_WORST_OF_LAST = 3


def block_orders(arms: Sequence[str], seed: int) -> Iterator[tuple[str, ...]]:
    """Endless random orders of the arms, balanced for position and for predecessor.

    Each round is a Williams square with the arms dealt to it at random and its rows shuffled: over
    a round every arm stands equally often in every place and follows every other arm equally
    often, so neither drift inside a block nor what an arm leaves behind (clock, cache, allocator)
    favours one. A round has as many blocks as arms, twice as many where their number is odd.
    """
    rng = random.Random(seed)
    square = _williams_square(len(arms))
    while True:
        dealt = rng.sample(list(arms), len(arms))
        for row in rng.sample(square, len(square)):
            yield tuple(dealt[place] for place in row)


def _williams_square(size: int) -> list[list[int]]:
    zigzag = [place // 2 if place % 2 == 0 else size - 1 - place // 2 for place in range(size)]
    rows = [[(place + shift) % size for place in zigzag] for shift in range(size)]
    if size % 2 == 0:
        return rows
    return rows + [row[::-1] for row in rows]


@dataclass
class Pace:
    """How long a block takes, from the blocks so far."""

    first_guess_s: float
    _recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WORST_OF_LAST))

    def add(self, block_s: float) -> None:
        """Add the time of one more block."""
        self._recent_s.append(block_s)

    @property
    def block_s(self) -> float:
        """The longest of the last blocks: an estimate that rarely overruns the budget."""
        return max(self._recent_s, default=self.first_guess_s)


@dataclass
class StopRule:
    """Ends the timed blocks: narrow enough, or no time for another, or as many as allowed."""

    precision: float
    deadline_s: float
    """On the caller's clock."""
    reserve_s: float
    """Set aside before the deadline for other passes, once there are `min_blocks`: a verdict
    comes first."""
    min_blocks: int
    max_blocks: int
    _next_check: int = 0

    def wants_interval(self, num_blocks: int) -> bool:
        """Whether to look at the intervals now: ever more rarely, as a look reads all samples."""
        if num_blocks < max(self.min_blocks, self._next_check):
            return False
        self._next_check = max(num_blocks + 1, round(num_blocks * _RECHECK_GROWTH))
        return True

    def decide(
        self, *, num_blocks: int, now_s: float, block_s: float, precise: bool
    ) -> EndCause | None:
        """Why to stop before the next block, or `None`.

        The first block runs whatever the budget: a run without one says nothing.
        """
        if precise and num_blocks >= self.min_blocks:
            return "precision"
        if num_blocks >= self.max_blocks:
            return "max-blocks"
        if num_blocks and now_s + block_s > self._end_s(num_blocks):
            return "budget"
        return None

    def remaining_s(
        self, *, num_blocks: int, now_s: float, block_s: float, half_width: float | None
    ) -> float:
        """Seconds of blocks to come, if the interval keeps narrowing with the root of blocks.

        `half_width` is that of the widest interval, `None` while unknown.
        """
        to_come = self.max_blocks - num_blocks
        if half_width is not None and num_blocks:
            needed = num_blocks * (half_width / self.precision) ** 2
            to_come = min(to_come, max(0, round(needed) - num_blocks))
        to_come = max(to_come, self.min_blocks - num_blocks)
        return max(0.0, min(to_come * block_s, self._end_s(num_blocks + to_come) - now_s))

    def _end_s(self, num_blocks: int) -> float:
        return self.deadline_s - (self.reserve_s if num_blocks >= self.min_blocks else 0.0)
