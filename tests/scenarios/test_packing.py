"""Packing keeps every token once, in order, within the budget, and fills rows best-fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.packing import Piece, pack, position_ids

LENGTHS = st.lists(st.integers(0, 200), max_size=60)
BUDGETS = st.integers(1, 128)


@given(LENGTHS, BUDGETS)
def test_no_token_is_lost_or_repeated(lengths, budget):
    rows = pack(lengths, budget)
    tokens = [
        (piece.document, piece.start + offset)
        for row in rows
        for piece in row.pieces
        for offset in range(piece.length)
    ]
    wanted = [(d, t) for d, length in enumerate(lengths) for t in range(length)]
    assert sorted(tokens) == wanted


@given(LENGTHS, BUDGETS)
def test_rows_keep_the_budget_and_split_only_what_exceeds_it(lengths, budget):
    for row in pack(lengths, budget):
        assert 0 < row.num_tokens <= budget
        for piece in row.pieces:
            if lengths[piece.document] <= budget:
                assert piece == Piece(piece.document, 0, lengths[piece.document])
            else:
                assert piece.start % budget == 0


@given(LENGTHS, BUDGETS)
def test_any_two_rows_hold_more_than_the_budget_so_over_half_is_filled(lengths, budget):
    rows = pack(lengths, budget)
    fills = sorted(row.num_tokens for row in rows)
    if len(fills) > 1:
        assert fills[0] + fills[1] > budget
        assert sum(fills) > len(fills) * budget / 2
    num_pieces = sum(-(-length // budget) for length in lengths)
    assert len(rows) <= num_pieces


@given(LENGTHS, BUDGETS)
def test_never_more_rows_than_first_fit_in_order_of_arrival_needs_by_far(lengths, budget):
    """Best-fit decreasing needs at most 11/9 of the optimum, and never less than the volume."""
    rows = len(pack(lengths, budget))
    volume = sum(lengths)
    assert rows >= -(-volume // budget)
    assert rows <= max(1, 2 * -(-volume // budget))


def test_best_fit_prefers_the_fullest_row_that_still_takes_the_piece():
    rows = pack([6, 7, 3, 4], 10)
    assert [sorted(piece.length for piece in row.pieces) for row in rows] == [[3, 7], [4, 6]]


@given(LENGTHS, BUDGETS)
def test_the_result_depends_on_lengths_and_budget_only(lengths, budget):
    assert pack(lengths, budget) == pack(tuple(lengths), budget)


@given(st.lists(st.integers(0, 20), max_size=10))
def test_positions_restart_at_each_document(lengths):
    positions = position_ids(lengths)
    start = 0
    for length in lengths:
        assert positions[start : start + length] == list(range(length))
        start += length
    assert start == len(positions)


@pytest.mark.parametrize(("lengths", "budget"), [([1], 0), ([-1], 4)])
def test_impossible_arguments_are_refused(lengths, budget):
    with pytest.raises(ValueError, match=r"must be at least 1|negative"):
        pack(lengths, budget)
