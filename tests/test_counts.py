"""Counts in text: the noun agrees with the number."""

import pytest

from harness.counts import counted


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 syncs"), (1, "1 sync"), (1.0, "1 sync"), (0.5, "0.50 syncs"), (1536, "1,536 syncs")],
)
def test_the_noun_agrees_with_the_number(value: float, text: str) -> None:
    assert counted(value, "sync") == text


def test_an_irregular_plural_is_given() -> None:
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2, "copy", "copies") == "2 copies"
