"""Audits and traces beside a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.errors import StoreError
from tests.dashboard import synthetic

if TYPE_CHECKING:
    from harness.record.store import Store


def test_audits_and_traces_come_back(store: Store) -> None:
    stored = store.write(
        synthetic.record(), [], audits=synthetic.AUDITS, traces={"baseline": b"a", "all": b"b"}
    )
    assert stored.audited_arms == ("baseline", "packed-metadata=cached")
    assert store.read(stored.id).traced_arms == ("baseline", "all")
    assert store.audits(stored.id) == synthetic.AUDITS
    assert store.trace(stored, "all") == b"b"
    assert store.listing().problems == ()
    with pytest.raises(StoreError, match="no trace of the arm 'other'"):
        store.trace(stored, "other")


def test_a_run_without_audits_says_so(store: Store) -> None:
    stored = store.write(synthetic.record(), [])
    assert stored.audited_arms == stored.traced_arms == ()
    with pytest.raises(StoreError, match=r"has no audits\.json"):
        store.audits(stored.id)


@pytest.mark.parametrize("content", [b"", b"[]", b"[1]", b"{", b"[" * 10_000, b"\xff"])
def test_damaged_audits_are_one_sentence(store: Store, content: bytes) -> None:
    stored = store.write(synthetic.record(), [], audits=synthetic.AUDITS)
    Path(store.root, stored.id, "audits.json").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be used"):
        store.audits(stored.id)
