"""Exact arithmetic on half-open intervals of integers (nanoseconds)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Sorted, disjoint intervals that cover the same points; empty ones vanish."""
    merged: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersection(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Points in both; each argument must come from `union`."""
    common: list[Interval] = []
    i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            common.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def gaps(intervals: Sequence[Interval]) -> list[Interval]:
    """What lies between consecutive intervals; the argument must come from `union`."""
    return [(before[1], after[0]) for before, after in pairwise(intervals)]


def length(intervals: Iterable[Interval]) -> int:
    """Summed length; the argument must be disjoint."""
    return sum(end - start for start, end in intervals)
