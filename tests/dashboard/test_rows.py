"""Rows: known answers from synthetic records."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.rows import arm_rows as ab
from dashboard.rows import claim_entries as claims
from dashboard.rows import lane_rows as lanes
from dashboard.rows import modelled_rows as whatif
from dashboard.rows import run_differences as across
from dashboard.rows import run_facts as run
from dashboard.rows import sync_rows as syncs
from dashboard.rows.listed import rows_csv
from harness.record.records import Arm
from harness.tables.claim_rows import rows_from_records
from harness.tables.speaking import gpu_name
from tests.dashboard import synthetic

if TYPE_CHECKING:
    from harness.record.records import RunRecord


def test_each_claim_has_its_published_figure_first_and_then_one_for_each_source_and_gpu() -> None:
    runs = [
        synthetic.record(3),
        synthetic.record(2, source="modelled", gpu="B200"),
        synthetic.record(1),
    ]
    entries = [e for e in claims.claim_entries(runs) if e.fix == "packed-metadata"]
    assert [(e.source, e.gpu) for e in entries] == [
        ("published", "GPU unnamed"),
        ("modelled", "B200"),
        ("measured", "cpu"),
    ]
    assert entries[0].text == "+14.3%"


def test_a_newer_run_without_a_figure_does_not_hide_an_older_one_with_one() -> None:
    failed = synthetic.record(2, comparisons=(), status="failed", reason="It ended early.")
    good = synthetic.record(1)
    entries = claims.claim_entries([failed, good])
    measured = next(e for e in entries if e.source == "measured")
    assert measured.run == good.id
    alone = next(e for e in claims.claim_entries([failed]) if e.source == "measured")
    assert alone.speedup is None
    assert "It ended early." in alone.remarks[0]


def test_an_arm_that_changes_more_than_the_claim_does_not_speak_for_it() -> None:
    # Only `packed-metadata` has an arm of its own in the synthetic ladder.
    row = {
        r.claim.optimization: r for r in rows_from_records(synthetic.claims(), [synthetic.record()])
    }
    assert row["packed-metadata"].measured is not None
    assert row["checkpoint-reload"].measured is None


@pytest.mark.parametrize(
    ("value", "high", "low", "top", "expected"),
    [
        (0.10, 0.15, 0.05, 0.09, "below"),
        (0.10, 0.15, 0.09, 0.11, "within"),
        (0.10, 0.15, 0.14, 0.30, "within"),
        (0.10, 0.15, 0.16, 0.30, "above"),
        (0.084, None, 0.085, 0.09, "above"),
        (0.084, None, 0.08, 0.084, "within"),
    ],
)
def test_against_published(value, high, low, top, expected) -> None:
    claim = msgspec.structs.replace(synthetic.claims()[0], value=value, value_high=high)
    assert claims.against_published(claim, low, top) == expected


def test_ladder_and_leave_one_out_come_from_paired_blocks() -> None:
    made, taken = synthetic.record(5), synthetic.samples(5)
    steps = ab.ladder_rows(made, taken, "batch")
    assert [row.fix for row in steps] == ["packed-metadata", "checkpoint-reload", "moe-routing"]
    assert steps[0].speedup == pytest.approx(1 / 0.88 - 1, abs=0.02)
    assert steps[1].speedup == pytest.approx(0.88 / 0.82 - 1, abs=0.02)
    assert steps[2].speedup == pytest.approx(0.82 / 0.70 - 1, abs=0.02)
    left_out = ab.leave_one_out_rows(made, taken, "batch")
    assert [row.fix for row in left_out] == ["moe-routing"]


def test_arms_that_form_no_ladder_give_no_steps() -> None:
    arms = (synthetic.ARMS[0], synthetic.ARMS[3])
    made = synthetic.record(0, arms=arms)
    assert ab.ladder_rows(made, synthetic.samples(0), "batch") == ()
    assert ab.leave_one_out_rows(made, synthetic.samples(0), "batch") == ()
    assert ab.leave_one_out_rows(synthetic.record(0, arms=()), (), "batch") == ()


def test_arm_rows_carry_the_noise_floor_and_what_else_an_arm_uses() -> None:
    rows = ab.arm_rows(synthetic.record(1, gpu="NVIDIA H200"))
    last = rows[-1]
    assert last.is_noise
    row = next(r for r in rows if r.arm == "all" and r.phase == "batch")
    assert (row.noise_low, row.noise_high) == (last.low, last.high)
    assert row.peak_bytes == 420_000_000
    assert row.baseline_energy_j == 120
    assert row.gpu == "NVIDIA H200"
    assert ab.arm_rows(synthetic.record(1))[0].energy_j is None


def test_strips_hold_one_value_a_block() -> None:
    made, taken = synthetic.record(1), synthetic.samples(1)
    strips = ab.strips(made, taken)
    assert {len(values) for values in strips.values()} == {10}
    row = next(r for r in ab.arm_rows(made) if r.arm == "all" and r.phase == "batch")
    values = sorted(strips["all", "batch"])
    assert values[0] <= row.low <= row.speedup <= row.high <= values[-1]


def test_runs_on_other_machines_are_not_comparable_and_say_why() -> None:
    base = synthetic.record(1)
    assert across.differences(base, synthetic.record(2)) == ()
    other = msgspec.structs.replace(
        synthetic.record(3), machine=msgspec.structs.replace(base.machine, torch="2.11.0")
    )
    assert differing(base, other) == [("torch", "2.13.0", "2.11.0")]
    h200 = differing(base, synthetic.record(4, gpu="NVIDIA H200"))
    assert ("GPU", "cpu", "NVIDIA H200") in h200
    clocks = [
        msgspec.structs.replace(
            base, steadiness=msgspec.structs.replace(base.steadiness, sm_clock_max_mhz=clock)
        )
        for clock in (1980.0, 1500.0)
    ]
    assert differing(*clocks) == [("highest SM clock", "1980 MHz", "1500 MHz")]


def differing(base: RunRecord, run: RunRecord) -> list[tuple[str, str, str]]:
    return [(row.fact, row.base_value, row.value) for row in across.differences(base, run)]


def test_sizes_that_differ_are_named_one_by_one_and_give_no_verdict() -> None:
    base = synthetic.record(1)
    scenario = msgspec.structs.replace(
        base.scenario, config={"num_layers": 2, "hidden_size": 64}, checkpointing=False
    )
    few = synthetic.record(2, scenario=scenario)
    assert differing(base, few) == [
        ("checkpointing", "on", "off"),
        ("size num_layers", "40", "2"),
    ]
    assert across.across_rows(base, [few]) == ()
    assert across.across_rows(base, [few, synthetic.record(3)]) != ()


def test_an_arm_moved_only_where_the_two_intervals_do_not_meet() -> None:
    base, same = synthetic.record(1), synthetic.record(2)
    assert not any(row.moved for row in across.across_rows(base, [same]) if row.arm == "all")
    faster = tuple(
        msgspec.structs.replace(c, low=c.low + 1, high=c.high + 1, speedup=c.speedup + 1)
        for c in same.comparisons
    )
    changed = msgspec.structs.replace(same, comparisons=faster)
    assert all(row.moved for row in across.across_rows(base, [changed]))
    assert across.across_rows(base, [base]) == ()


def test_sites_are_joined_before_and_after() -> None:
    before, after = (audit.report for audit in synthetic.AUDITS)
    rows = syncs.site_rows(before, after)
    assert (rows[0].place, rows[0].before, rows[0].after) == ("packing.py:41 max_length", 159, 1)
    assert (rows[1].before, rows[1].after) == (1, 1)
    assert rows[1].exposed_before_ms is None, "unknown is not 0"
    assert syncs.site_rows(before, None)[0].after is None
    assert syncs.group_rows(synthetic.AUDITS[0])[0].size == 40
    assert syncs.source_of(before) == "modelled"


def test_a_site_that_is_gone_costs_nothing_and_one_without_a_clock_stays_unknown() -> None:
    before = synthetic.AUDITS[0].report
    empty = msgspec.structs.replace(before, sites=())
    timed, untimed = syncs.site_rows(before, empty)[:2]
    assert (timed.after, timed.exposed_after_ms) == (0, 0)
    assert (untimed.after, untimed.exposed_after_ms) == (0, None)
    assert syncs.site_rows(before, None)[0].exposed_after_ms is None


def test_what_if_knows_modelled_runs_only_and_the_newest_of_each() -> None:
    made = [
        synthetic.record(3, source="modelled", gpu="B200"),
        synthetic.record(2, source="modelled", gpu="B200"),
        synthetic.record(1, gpu="B200"),
    ]
    rows = whatif.whatif_rows(made)
    assert {row.run for row in rows} == {made[0].id}
    assert {row.gpu for row in rows} == {"B200"}
    assert whatif.whatif_rows(made[2:]) == ()


def test_each_set_up_of_a_modelled_size_is_a_row_of_its_own() -> None:
    base = synthetic.record(3, source="modelled", gpu="B200")
    other = msgspec.structs.replace(
        synthetic.record(2, source="modelled", gpu="B200"),
        scenario=msgspec.structs.replace(
            base.scenario, checkpointing=not base.scenario.checkpointing
        ),
    )
    one, two = sorted({row.setup for row in whatif.whatif_rows([base, other])}, key=len)
    assert (one.endswith(", recompute"), two.endswith(", no recompute")) == (True, True)
    assert one.startswith(f"{base.scenario.input.num_tokens:,} tokens, ")
    varlen = msgspec.structs.replace(
        base, scenario=msgspec.structs.replace(base.scenario, attention="varlen")
    )
    assert len({row.setup for row in whatif.whatif_rows([base, varlen])}) == 2
    # An arm that a newer run of the same size does not have is still known from the older one.
    fewer = msgspec.structs.replace(base, comparisons=base.comparisons[:1])
    older = synthetic.record(1, source="modelled", gpu="B200")
    arms = {row.arm for row in whatif.whatif_rows([fewer, older])}
    assert arms == {row.arm for row in whatif.whatif_rows([older])}


def test_a_modelled_gpu_never_bears_the_name_of_a_measured_one() -> None:
    assert gpu_name(synthetic.record(0, source="modelled", gpu="H100")) == "H100"
    assert gpu_name(synthetic.record(0, gpu="NVIDIA H200")) == "NVIDIA H200"
    assert gpu_name(synthetic.record(0)) == "cpu"


def test_samples_are_thinned_in_order() -> None:
    rows = run.thinned(synthetic.samples(0, 100), "batch", 50)
    assert 25 <= len(rows) <= 50
    assert [row.order for row in rows] == sorted(row.order for row in rows)


def test_csv_keeps_every_digit_and_no_formula() -> None:
    arm = Arm(name="=HYPERLINK(1)", variants={}, role="arm")
    row = ab.arm_rows(synthetic.record(1))[0]
    evil = msgspec.structs.replace(row, arm=f"{arm.name}\nnext,line")
    lines = list(csv.DictReader(io.StringIO(rows_csv(ab.ArmRow, [evil]))))
    assert float(lines[0]["speedup"]) == row.speedup
    assert lines[0]["arm"] == "'=HYPERLINK(1) next,line"
    assert lines[0]["energy_j"] == ""


def test_gpus_are_ranked_by_what_they_share() -> None:
    made = msgspec.structs.replace(synthetic.record(1), source="modelled")
    row = next(row for row in whatif.whatif_rows([made]) if row.phase == "batch")
    rows = [
        msgspec.structs.replace(row, gpu=gpu, model=model, baseline_ms=ms)
        for gpu, model, ms in (
            ("quick", "small", 10.0), ("slow", "small", 90.0), ("quick", "large", 5_000.0),
            ("middle", "small", 30.0), ("middle", "other", 1.0),
        )
    ]  # fmt: skip
    assert whatif.gpus_by_speed(rows) == ("slow", "middle", "quick")


def test_the_baseline_is_shown_beside_the_arm_with_the_fewest_syncs() -> None:
    arms = [synthetic.audit(name, n) for name, n in (("some", 9.0), ("least", 1.0), ("a/a", 159.0))]
    assert syncs.fewest(arms).arm == "least"


def _disjoint(pairs: list[tuple[int, int]]) -> lanes.Spans:
    at, made = 0.0, []
    for gap, length in pairs:
        start = at + gap / 7
        at = start + length / 11
        made.append((start, at))
    return tuple(made)


spans = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 50)), min_size=1, max_size=200
).map(_disjoint)


@given(spans, st.integers(1, 400))
def test_a_filled_lane_has_at_most_one_shape_a_pixel_and_loses_no_event(found, num_pixels) -> None:
    end = found[-1][1]
    drawn = lanes.filled(found, 0.0, end, num_pixels)
    assert len(drawn) <= num_pixels
    assert list(drawn) == sorted(drawn)
    for start, stop in found:
        middle = (start + stop) / 2
        assert any(a - 1e-6 <= middle <= b + 1e-6 for a, b, _ in drawn)
    # What is drawn is what is busy: each shape within one shade, and one more where it is raised
    # to be seen.
    area = sum((b - a) * share for a, b, share in drawn)
    busy = sum(stop - start for start, stop in found)
    raised = sum((b - a) / lanes.LEVELS for a, b, share in drawn if share == 1 / lanes.LEVELS)
    assert busy - end / lanes.LEVELS - 1e-6 <= area <= busy + raised + 1e-6


def test_a_gap_shorter_than_a_pixel_lowers_it() -> None:
    spans = ((0.0, 4.0), (4.5, 10.0))
    assert lanes.filled(spans, 0.0, 10.0, 5) == ((0.0, 4.0, 1.0), (4.0, 6.0, 0.7), (6.0, 10.0, 1.0))
    assert lanes.filled(spans, 4.0, 5.0, 2) == ((4.5, 5.0, 1.0),)
    assert lanes.filled((), 0.0, 10.0, 5) == ()


def test_shading_is_never_widened() -> None:
    found = ((0.0, 0.01), (0.02, 0.03), (5.0, 7.0))
    assert lanes.visible(found, 0.0, 10.0, 100) == ((5.0, 7.0),)
    assert lanes.visible(found, 6.0, 10.0, 100) == ((6.0, 7.0),)
