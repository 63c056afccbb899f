"""Interval arithmetic against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.clock.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(-20, 60), st.integers(-3, 15)), max_size=12)


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {time for start, length in pairs for time in range(start, start + length)}


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    start = np.array([start for start, _ in pairs], dtype=np.int64)
    length = np.array([length for _, length in pairs], dtype=np.int64)
    return Intervals.union_of(start, start + length)


def covered(found: Intervals) -> set[int]:
    return {
        time
        for start, end in zip(found.start, found.end, strict=True)
        for time in range(start, end)
    }


@given(PAIRS, PAIRS)
def test_set_operations_agree_with_sets_of_points(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = intervals(left), intervals(right)
    assert covered(a) == points(left)
    assert covered(a & b) == points(left) & points(right)
    assert covered(a | b) == points(left) | points(right)
    assert covered(a - b) == points(left) - points(right)
    assert a.length == len(points(left))


@given(PAIRS, PAIRS)
def test_results_are_sorted_disjoint_and_do_not_touch(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = intervals(left), intervals(right)
    for result in (a, a & b, a | b, a - b):
        assert (result.start < result.end).all()
        assert (result.end[:-1] < result.start[1:]).all()


@given(PAIRS, st.integers(-25, 80), st.integers(0, 40))
def test_cover_of_a_window_and_its_inverse(
    pairs: list[tuple[int, int]], start: int, length: int
) -> None:
    found, truth = intervals(pairs), points(pairs)
    inside = len(truth & set(range(start, start + length)))
    window = np.array([start]), np.array([start + length])
    assert found.covered_within(*window)[0] == inside
    assert found.contains(np.array([start]))[0] == (start in truth)
    assert found.within(start, start + length).length == inside
    if len(found):
        reached = found.time_after(np.array([start]), np.array([inside]))
        assert found.covered_within(np.array([start]), reached)[0] == inside
        assert start <= reached[0] <= start + length


@given(PAIRS)
def test_gaps_complete_the_span(pairs: list[tuple[int, int]]) -> None:
    found = intervals(pairs)
    if len(found):
        assert found.length + found.gaps().length == found.end[-1] - found.start[0]
