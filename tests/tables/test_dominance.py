"""What decides a modelled comparison, as one sentence that holds for the record at hand."""

from __future__ import annotations

import pytest

from harness.record.records import Arm, Overlap, RunRecord, SyncCount
from harness.tables.dominance import what_dominates
from tests.toys.small_records import claim, comparison, record

CLAIM = claim("c", optimization="fix", variant="after")


def modelled(
    *,
    saved_ms: float = 10.0,
    exposed_ms: float = 0.0,
    hidden: tuple[float, float] = (0.0, 0.0),
    work: str | None = "mask rebuilds",
) -> RunRecord:
    """A baseline of 100 ms with 20 ms of copies, and an arm that saves `saved_ms`."""
    times = comparison("arm", baseline_median_ms=100.0, arm_median_ms=100.0 - saved_ms)
    overlaps = tuple(
        Overlap(arm=arm, overlap=share, copy_ms=20.0, idle_ms=None, source="modelled")
        for arm, share in zip(("baseline", "arm"), hidden, strict=True)
    )
    sync = SyncCount(
        arm="baseline", phase="batch", count=120, source="modelled", method="profiler",
        exposed_ms=exposed_ms,
    )  # fmt: skip
    return record(
        arms=(
            Arm(name="baseline", variants={"fix": "before"}, role="baseline"),
            Arm(name="arm", variants={"fix": "after"}),
        ),
        comparisons=(times,),
        overlap=overlaps,
        syncs=(sync,),
        saved_work={} if work is None else {"fix": work},
    )


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ({"hidden": (0.2, 0.9)}, "The link dominates: copies take 20 ms of the step"),
        ({"hidden": (0.2, 0.3), "exposed_ms": 6.0}, "The waits dominate: 120 reads of the device"),
        ({"exposed_ms": 6.0}, "The waits dominate: 120 reads of the device"),
        ({"exposed_ms": 4.0}, "The host's mask rebuilds dominate: 10 ms are saved"),
        ({"work": "launches of experts"}, "The host's launches of experts dominate"),
    ],
)
def test_the_sentence_names_what_saves_most(values: dict[str, object], begins: str) -> None:
    said = what_dominates(CLAIM, modelled(**values))
    assert said is not None
    assert said.startswith(begins)


@pytest.mark.parametrize(
    "values", [{"saved_ms": 0.0}, {"saved_ms": -3.0, "exposed_ms": 9.0}, {"work": None}]
)
def test_nothing_is_said_where_nothing_is_saved_or_known(values: dict[str, object]) -> None:
    assert what_dominates(CLAIM, modelled(**values)) is None
