"""What a sweep did not reach: which rows, why, and how long they need."""

from __future__ import annotations

import json

import msgspec
import pytest

from gapless.cli.main import main
from gapless.shortfall import below, seconds_for, shortfalls, told
from gapless.sweep import Sweep
from harness.tables.claim_rows import ReproduceRow
from scenarios.published import CLAIMS
from tests.toys.small_records import claim, comparison, record

WIDE = {"verdict": "undecided", "low": -0.1, "high": 0.5}
ROWS = (
    ReproduceRow(claim=claim("sure"), measured=comparison("cached")),
    ReproduceRow(claim=claim("wide"), measured=comparison("cached", **WIDE)),
    ReproduceRow(claim=claim("few"), measured=comparison("cached", num_blocks=3, **WIDE)),
    ReproduceRow(claim=claim("one"), measured=comparison("cached", num_blocks=1, **WIDE)),
    ReproduceRow(claim=claim("none"), needs="Not measured: no time was left."),
    ReproduceRow(
        claim=claim("modelled"),
        measured=comparison("cached", num_blocks=1, source="modelled", **WIDE),
    ),
)


def test_rows_without_a_verdict_say_why() -> None:
    assert [(one.claim, one.blocks, one.why) for one in shortfalls(ROWS)] == [
        ("wide", 12, "The interval allows more than one verdict."),
        ("few", 3, "3 blocks are too few; 8 are wanted."),
        ("one", 1, "One block gives no interval."),
        ("none", 0, "Not measured: no time was left."),
    ]
    lines = list(told(shortfalls(ROWS), len(ROWS)))
    assert lines[0] == "Not reached: 4 of 6 rows have no verdict."
    assert lines[3] == "  one: One block gives no interval."
    assert list(told((), 6)) == []
    assert next(told(shortfalls(ROWS[-2:-1]), 1)) == "Not reached: 1 of 1 row has no verdict."


def test_blocks_are_counted_also_where_there_are_none() -> None:
    assert below(ROWS, 8) == ("few", "one", "none", "modelled")
    assert below(ROWS, 1) == ("none",)


def test_a_slow_step_gets_longer() -> None:
    missed = shortfalls(ROWS[3:5])
    assert seconds_for(missed, ()) == 120
    slow = comparison("cached", baseline_median_ms=5_000.0, arm_median_ms=5_000.0)
    pace = record(claims=(claim("one"),), comparisons=(slow,))
    assert seconds_for(missed, (pace,)) == 2 * 8 * 10 + 60


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that gave one row one block."""
    first = CLAIMS[0]
    baseline, fixed = {first.optimization: first.baseline_variant}, {}
    fixed = {first.optimization: first.variant}
    seen = comparison("fixed", first.phase, num_blocks=1, **WIDE)
    arms = tuple(
        msgspec.structs.replace(arm, name=name, variants=variants)
        for arm, name, variants in zip(
            record().arms[:2], ("baseline", "fixed"), (baseline, fixed), strict=True
        )
    )
    run = record(claims=(first,), arms=arms, comparisons=(seen,), parity=())
    monkeypatch.setattr("gapless.sweep.sweep_claims", lambda *_, **__: Sweep(records=[run]))


@pytest.mark.usefixtures("swept")
def test_stdout_says_what_was_not_reached_and_what_to_type(capsys) -> None:
    only = ["--only", CLAIMS[0].id]
    store = ["--store", "a folder"]
    assert main(["reproduce", "--device", "cpu", *only, *store]) == 0
    printed = capsys.readouterr().out
    assert f"  {CLAIMS[0].id}: One block gives no interval." in printed
    assert (
        f"gapless reproduce --only {CLAIMS[0].id} --seconds 60 --device cpu --store 'a folder'"
    ) in printed


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize(("blocks", "code"), [(1, 0), (2, 4)])
def test_too_few_blocks_have_an_exit_code_of_their_own(capsys, blocks: int, code: int) -> None:
    words = ["reproduce", "--device", "cpu", "--only", CLAIMS[0].id, "--json"]
    assert main([*words, "--min-blocks", str(blocks)]) == code
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [one["blocks"] for one in document["not_reached"]] == [1]
    assert ("--min-blocks 2: 1 row has fewer blocks." in captured.err) == (code == 4)
