"""Which of several runs speaks: the same one on every page, in the report and in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dashboard.charts.arm_charts import overview_chart
from dashboard.charts.claim_chart import claims_chart
from dashboard.facets import facets_of
from dashboard.rows import arm_rows, claim_entries
from harness.tables.claim_rows import rows_from_records
from harness.tables.run_tables import headline
from harness.tables.speaking import size_text
from tests.dashboard import synthetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import RunRecord

LONG = synthetic.record(1)


def changed(number: int, **figures: Any) -> RunRecord:
    """A run whose comparisons have these fields."""
    made = synthetic.record(number)
    comparisons = tuple(msgspec.structs.replace(c, **figures) for c in made.comparisons)
    return msgspec.structs.replace(made, comparisons=comparisons)


def killed(number: int) -> RunRecord:
    """A run that was killed after one block, with a figure out of this world."""
    one = changed(number, num_blocks=1, speedup=7.51, low=7.51, high=7.51, verdict="undecided")
    return msgspec.structs.replace(one, status="incomplete", reason="It was killed.")


def few_layers(number: int) -> RunRecord:
    """Two layers with the narrowest interval of all."""
    made = changed(number, low=0.4, high=0.4001, speedup=0.4)
    scenario = msgspec.structs.replace(
        made.scenario,
        fit="full",
        config={"num_layers": 2, "hidden_size": 5120},
        narrowed={"num_layers": (40, 2)},
    )
    return msgspec.structs.replace(made, scenario=scenario)


def full(number: int) -> RunRecord:
    """The whole model at its real widths."""
    made = changed(number, low=0.1, high=0.2, speedup=0.15)
    scenario = msgspec.structs.replace(
        made.scenario, fit="full", config={"num_layers": 40, "hidden_size": 5120}, narrowed={}
    )
    return msgspec.structs.replace(made, scenario=scenario)


def speaks_everywhere(records: Sequence[RunRecord]) -> str:
    """The run that speaks for the claim, which must be one for page, report and terminal."""
    entries = claim_entries.claim_entries(records)
    entry = next(e for e in entries if e.source == "measured" and e.speedup is not None)
    claim = next(c for c in synthetic.claims() if c.id == entry.claim)
    (row,) = rows_from_records([claim], records)
    assert row.run == entry.run
    assert set(entry.other_runs) == {record.id for record in records} - {entry.run}
    return entry.run


def test_a_killed_run_hides_no_complete_one_and_a_wide_interval_no_narrow_one() -> None:
    short = changed(9, low=-0.5, high=0.9)
    for records in ([killed(9), LONG], [short, LONG], [LONG, short], [killed(8), short, LONG]):
        assert speaks_everywhere(records) == LONG.id


def test_few_layers_never_stand_for_the_whole_model() -> None:
    assert speaks_everywhere([few_layers(9), full(2)]) == full(2).id
    assert size_text(few_layers(9)) == "2 of 40 layers"
    assert size_text(full(2)) == "full"
    assert "(2 of 40 layers)" in headline(few_layers(9))
    alone = claim_entries.claim_entries([few_layers(9)])
    labels = [note["text"] for note in claims_chart(alone)["layout"]["annotations"]]
    assert "measured · cpu · 2 of 40 layers" in labels


def spoken(records: Sequence[RunRecord], **options: Any) -> arm_rows.Spoken:
    found = {record.id: record for record in records}
    return arm_rows.spoken(map(facets_of, records), found.get, **options)


def test_runs_of_another_fix_size_or_baseline_are_other_arms() -> None:
    reload_arms = (
        synthetic.ARMS[0],
        msgspec.structs.replace(
            synthetic.ARMS[1],
            name="checkpoint-reload=double-buffer",
            variants=synthetic.ARMS[0].variants | {"checkpoint-reload": "double-buffer"},
        ),
    )
    comparison = msgspec.structs.replace(
        LONG.comparisons[0], arm="checkpoint-reload=double-buffer", phase="batch"
    )
    reload = synthetic.record(9, arms=reload_arms, comparisons=(comparison,))
    both = spoken([reload, LONG], phase="batch")
    assert {row.run for row in both.rows} == {reload.id, LONG.id}
    assert (len(both.rows), both.num_others) == (4, 0)
    sizes = spoken([few_layers(9), full(2), LONG], phase="batch")
    assert {row.fit for row in sizes.rows} == {"2 of 40 layers", "full", "narrow"}


def test_figures_of_the_same_arms_are_counted_and_those_left_out_too() -> None:
    twice = spoken([killed(9), LONG])
    assert {row.run for row in twice.rows} == {LONG.id}
    assert (len(twice.rows), twice.num_others, twice.num_left_out) == (12, 12, 0)
    limited = spoken([full(9), LONG], phase="batch", max_runs=1)
    assert (len(limited.rows), limited.num_left_out) == (3, 3)


def test_too_few_blocks_are_hollow_without_a_bar_and_set_no_scale() -> None:
    alone = spoken([killed(9), full(2)], phase="batch")
    chart = overview_chart(alone.rows)
    bars = [trace for trace in chart["data"] if trace["type"] == "bar"]
    dots = [trace for trace in chart["data"] if trace["type"] == "scatter"]
    assert {value for trace in bars for value in trace["x"]} == {0.15}
    assert {value for trace in dots for value in trace["x"]} == {7.51}
    assert {trace["marker"]["symbol"] for trace in dots} == {"circle-open"}
    assert chart["layout"]["xaxis"]["range"][1] < 0.3
    assert [note["text"] for note in chart["layout"]["annotations"]].count("<b>▶</b>") == 3

    entries = claim_entries.claim_entries([killed(9)])
    chart = claims_chart(entries)
    assert chart["layout"]["xaxis"]["range"][1] < 0.3
    measured = next(e for e in entries if e.source == "measured" and e.speedup is not None)
    assert "The run is incomplete: It was killed." in measured.remarks


def test_a_single_block_of_the_baseline_against_itself_shades_nothing() -> None:
    row = next(row for row in arm_rows.arm_rows(killed(9)) if not row.is_noise)
    assert row.noise_low is None


def test_a_modelled_claim_leaves_out_set_ups_of_fewer_layers() -> None:
    whole, part = (
        msgspec.structs.replace(
            made,
            source="modelled",
            machine=synthetic.machine("modelled", "B200"),
            comparisons=tuple(
                msgspec.structs.replace(c, source="modelled") for c in made.comparisons
            ),
        )
        for made in (full(2), few_layers(9))
    )
    entry = next(
        e
        for e in claim_entries.claim_entries([part, whole])
        if e.source == "modelled" and e.speedup
    )
    assert (entry.run, entry.other_runs, entry.size) == (whole.id, (part.id,), "full")
