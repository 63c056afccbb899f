"""What a run keeps where its store has little room."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gapless.bench_run import carry_out
from harness.errors import StoreError
from harness.record.store import Store
from tests.toys.bench_toys import toy_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.bench.plan import BenchPlan

MIB = 1 << 20


def plan_with_traces(num_bytes: int) -> BenchPlan:
    return toy_plan(
        spec={"trace_repeats": num_bytes // len("fast")},
        sync_probe="tests.toys.bench_toys:sync_probe",
    )


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_timelines_of_many_chunks_come_back_whole(tmp_path: Path) -> None:
    record = carry_out(plan_with_traces(8 * MIB), store=str(tmp_path))
    assert record.traced_arms == ("baseline", "fast")
    assert Store(str(tmp_path)).trace(record, "fast") == b"fast" * (2 * MIB)


def test_a_store_without_room_for_timelines_keeps_the_rest(tmp_path: Path) -> None:
    with largest_file(MIB):
        record = carry_out(plan_with_traces(2 * MIB), store=str(tmp_path))
    assert record.status == "complete"
    assert record.traced_arms == ()
    assert record.audited_arms == ("baseline", "fast")
    assert "without them" in record.notes[-1]
    (kept,) = Store(str(tmp_path)).listing().records
    assert kept.id == record.id
    assert kept.notes == record.notes


def test_a_store_without_room_for_anything_says_so(tmp_path: Path) -> None:
    with largest_file(64), pytest.raises(StoreError, match="cannot take run"):
        carry_out(plan_with_traces(0), store=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
