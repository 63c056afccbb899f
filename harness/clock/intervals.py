"""Exact arithmetic on sets of half-open intervals in integer nanoseconds.

A set is held as sorted starts and ends of disjoint, non-touching intervals, so that every length
is a sum of integer differences and no rounding takes place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """A set of time. `start` and `end`: int64, equal length, `start[i] < end[i] < start[i + 1]`."""

    start: Int64
    end: Int64

    @classmethod
    def empty(cls) -> Intervals:
        """The empty set."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def union_of(cls, start: Int64, end: Int64) -> Intervals:
        """Time covered by at least one of the given intervals, which may overlap in any way."""
        chosen = end > start
        start, end = start[chosen], end[chosen]
        if not len(start):
            return cls.empty()
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        first = np.concatenate(([True], start[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(start[first], reach[last])

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """Nanoseconds covered."""
        return int((self.end - self.start).sum())

    @property
    def span(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return int(self.end[-1] - self.start[0]) if len(self) else 0

    @cached_property
    def _lengths_before(self) -> Int64:
        """Time covered before each interval, and in all."""
        return np.concatenate(([0], np.cumsum(self.end - self.start))).astype(np.int64)

    def covered_before(self, time: Int64) -> Int64:
        """Nanoseconds of the set that lie before each time."""
        if not len(self):
            return np.zeros_like(time)
        index = np.searchsorted(self.start, time, side="right")
        beyond = np.where(index > 0, self.end[np.maximum(index, 1) - 1] - time, 0)
        before: Int64 = self._lengths_before[index] - np.maximum(beyond, 0)
        return before

    def covered_within(self, start: Int64, end: Int64) -> Int64:
        """Nanoseconds of the set inside each given interval."""
        inside: Int64 = np.maximum(self.covered_before(end) - self.covered_before(start), 0)
        return inside

    def time_after(self, time: Int64, amount: Int64) -> Int64:
        """Earliest moment by which `amount` of the set has passed since `time`.

        Both arrays have one entry a query; `amount` must not exceed what is left of the set.
        """
        target = self.covered_before(time) + amount
        if not len(self):
            return time
        index = np.searchsorted(self._lengths_before, target, side="left") - 1
        index = np.clip(index, 0, len(self) - 1)
        reached: Int64 = self.start[index] + (target - self._lengths_before[index])
        moment: Int64 = np.where(amount > 0, reached, time)
        return moment

    def contains(self, time: Int64) -> npt.NDArray[np.bool_]:
        """Whether each time lies inside the set."""
        if not len(self):
            return np.zeros(len(time), dtype=np.bool_)
        index = np.searchsorted(self.start, time, side="right") - 1
        inside: npt.NDArray[np.bool_] = (index >= 0) & (time < self.end[np.maximum(index, 0)])
        return inside

    def within(self, start: int, end: int) -> Intervals:
        """The part between two times."""
        return self & Intervals.union_of(np.array([start]), np.array([end]))

    def gaps(self) -> Intervals:
        """Time between the first start and the last end that is not covered."""
        return Intervals(self.end[:-1], self.start[1:])

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.union_of(
            np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end))
        )

    def __and__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return Intervals.empty()
        time = np.concatenate((self.start, other.start, self.end, other.end))
        change = np.ones(len(time), dtype=np.int64)
        change[len(self) + len(other) :] = -1
        order = np.argsort(time, kind="stable")
        time = time[order]
        both = np.cumsum(change[order])[:-1] == 2
        present = both & (time[1:] > time[:-1])
        return Intervals.union_of(time[:-1][present], time[1:][present])

    def __sub__(self, other: Intervals) -> Intervals:
        """Time in this set and not in the other."""
        if not len(self) or not len(other):
            return self
        low = min(int(self.start[0]), int(other.start[0])) - 1
        high = max(int(self.end[-1]), int(other.end[-1])) + 1
        outside = Intervals(
            np.concatenate(([low], other.end)), np.concatenate((other.start, [high]))
        )
        return self & outside
