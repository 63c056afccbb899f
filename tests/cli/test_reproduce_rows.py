"""Claims to runs, and records back to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gapless.published_runs import plan_runs, select_claims
from harness.errors import UsageError
from harness.tables.claim_rows import reproduce_table, rows_from_records
from harness.tables.grid import to_markdown
from harness.workload import Variant
from scenarios.published import CLAIMS
from tests.toys.small_records import claim, comparison, parity, record

if TYPE_CHECKING:
    from harness.record.records import RunRecord

CHOICES = {
    "packed-metadata": (
        Variant("per-layer", "baseline", "Rebuilt in each layer."),
        Variant("cached", "published", "Once a batch."),
        Variant("collator", "beyond", "No read."),
    ),
    "checkpoint-reload": (
        Variant("single-buffer", "baseline", "One buffer."),
        Variant("double-buffer", "published", "Two buffers."),
        Variant("prefetch", "beyond", "Ahead of time."),
    ),
}
FORWARD = claim("forward", phase="forward", value=0.433)
BATCH = claim("batch")


def test_claims_on_one_scenario_and_fix_share_a_run() -> None:
    other = claim("other", scenario="qwen3-0.6b-packed-sft")
    runs = plan_runs([FORWARD, other, BATCH])
    assert [(run.scenario, run.claims) for run in runs] == [
        ("qwen3-14b-packed-sft", (FORWARD, BATCH)),
        ("qwen3-0.6b-packed-sft", (other,)),
    ]


def test_fixes_take_turns_so_that_each_is_seen_early() -> None:
    claims = [
        claim("m1", scenario="qwen3-14b-packed-sft"),
        claim("m2", scenario="qwen3-0.6b-packed-sft"),
        claim("r1", optimization="checkpoint-reload"),
        claim("o1", optimization="moe-routing"),
    ]
    assert [run.claims[0].id for run in plan_runs(claims)] == ["m1", "r1", "o1", "m2"]


def test_a_run_times_the_claimed_variant_and_the_one_beyond() -> None:
    (run,) = plan_runs([FORWARD, BATCH])
    assert [arm.name for arm in run.arms(CHOICES)] == [
        "baseline",
        "packed-metadata=cached",
        "packed-metadata=collator",
    ]


def test_reload_runs_are_free_of_metadata_reads_in_every_arm() -> None:
    (run,) = plan_runs(
        [
            claim(
                "reload",
                optimization="checkpoint-reload",
                baseline_variant="single-buffer",
                variant="double-buffer",
            )
        ]
    )
    arms = run.arms(CHOICES)
    assert {arm.variants["packed-metadata"] for arm in arms} == {"collator"}
    assert [arm.name for arm in arms][1:] == [
        "checkpoint-reload=double-buffer",
        "checkpoint-reload=prefetch",
    ]


def test_every_published_claim_is_in_exactly_one_run() -> None:
    planned = [claim.id for run in plan_runs(CLAIMS) for claim in run.claims]
    assert sorted(planned) == sorted(claim.id for claim in CLAIMS)
    assert len(set(planned)) == len(planned)


def test_select_keeps_the_published_order_and_names_what_is_unknown() -> None:
    assert select_claims((FORWARD, BATCH), ["batch", "forward"]) == (FORWARD, BATCH)
    assert select_claims((FORWARD, BATCH), []) == (FORWARD, BATCH)
    with pytest.raises(UsageError, match=r"no claim 'bach'; choose from forward, batch"):
        select_claims((FORWARD, BATCH), ["bach"])


def test_a_row_reads_its_own_phase_and_arms() -> None:
    run = record(claims=(FORWARD, BATCH))
    row = rows_from_records([FORWARD], [run])[0]
    assert row.run == run.id
    assert row.measured is not None
    assert (row.measured.arm, row.measured.phase) == ("packed-metadata=cached", "forward")
    assert row.beyond is not None
    assert row.beyond.arm == "packed-metadata=collator"
    assert row.noise is not None
    assert row.noise.arm == "a/a"
    assert (row.baseline_tokens_per_s, row.tokens_per_s) == (1000.0, 1200.0)
    assert row.needs is None


def modelled(gpu: str, speedup: float, documents: float) -> RunRecord:
    base = record()
    summary = base.scenario.input
    assert summary is not None
    return record(
        source="modelled",
        claims=(BATCH,),
        machine=msgspec.structs.replace(base.machine, device=f"emulated-{gpu}"),
        scenario=msgspec.structs.replace(
            base.scenario,
            input=msgspec.structs.replace(summary, num_documents_mean=documents),
        ),
        comparisons=(comparison("packed-metadata=cached", speedup=speedup, source="modelled"),),
    )


def test_what_is_not_published_makes_the_modelled_figure_a_range() -> None:
    setups = [modelled("b200", 0.22, 4), modelled("gb10", 0.01, 4), modelled("b200", 5.36, 256)]
    (row,) = rows_from_records([BATCH], [record(claims=(BATCH,))], modelled=setups)
    assert row.modelled is not None
    assert (row.modelled_low, row.modelled.speedup) == (0.01, 5.36)
    table = reproduce_table([row])
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["Modelled there"] == "+1.0% to +536% (B200, GB10)"
    assert "is a range" in table.notes[0]


def test_a_setup_modelled_again_takes_the_place_of_its_older_figure() -> None:
    newer, older = modelled("b200", 0.22, 4), modelled("b200", 0.9, 4)
    (row,) = rows_from_records([BATCH], [], modelled=[newer, older])
    assert row.modelled is not None
    assert (row.modelled_low, row.modelled.speedup) == (None, 0.22)
    table = reproduce_table([row])
    assert dict(zip(table.columns, table.rows[0], strict=True))["Modelled there"] == "+22.0% (B200)"


def test_no_speedup_without_parity() -> None:
    arm = "packed-metadata=cached"
    run = record(
        claims=(BATCH,),
        comparisons=(comparison("a/a"),),
        parity=(parity(arm, passed=False, bitwise=False, reason="the gradients are not finite"),),
    )
    row = rows_from_records([BATCH], [run])[0]
    assert row.measured is None
    assert row.needs == (
        "No speedup counts, because parity of loss failed: the gradients are not finite"
    )
    assert "failed (loss)" in reproduce_table([row]).rows[0]


def test_a_failed_run_says_why_and_a_missing_one_what_it_needs() -> None:
    failed = record(
        claims=(BATCH,),
        comparisons=(),
        parity=(),
        throughput=(),
        status="failed",
        reason="Out of memory during warm-up: use a smaller batch.",
    )
    row = rows_from_records([BATCH], [failed])[0]
    assert row.needs == "Not measured: Out of memory during warm-up: use a smaller batch."
    assert row.tokens_per_s is None
    row = rows_from_records([FORWARD], [failed], needs={"forward": "Not measured: no time."})[0]
    assert row.needs == "Not measured: no time."
    row = rows_from_records([FORWARD], [])[0]
    assert row.needs == "Not measured; needs `gapless reproduce --only forward`."


def test_the_table_shows_published_and_measured_apart_with_their_remarks() -> None:
    odd = claim("odd", caveats=("It does not add up.",), gpu="B200", value=0.10, value_high=0.15)
    run = record(claims=(BATCH, odd))
    table = reproduce_table(rows_from_records([BATCH, odd], [run]))
    cells = dict(zip(table.columns, table.rows[1], strict=True))
    assert cells["Published"] == "+10.0% to +15.0% (B200)"
    assert cells["Measured here"] == "+20.0% [+18.0%, +22.0%]"
    assert cells["Going beyond"] == "+50.0% [+45.0%, +55.0%]"
    assert cells["Noise floor"] == "+-1.1%"
    assert cells["Tokens/s"] == "1,000 -> 1,200"
    notes = [table.notes[int(number) - 1] for number in cells["Notes"].split()]
    here = (
        "Here: Qwen3-14B; CPU, 2 threads; float32, sdpa-mask attention, all weights trained; "
        "512 tokens in 24 documents a step; narrowed: hidden_size 5,120 -> 64."
    )
    assert notes == [
        here,
        "Published: QLoRA SFT, batch not published",
        "It does not add up.",
    ]
    assert len(set(table.notes)) == len(table.notes)


def test_markdown_has_a_row_a_claim_and_escapes_bars() -> None:
    rows = rows_from_records([claim("a|b", model="a|b"), BATCH], [])
    lines = to_markdown(reproduce_table(rows)).splitlines()
    assert lines[1].count("---") == len(reproduce_table(rows).columns)
    assert "a\\|b" in lines[2]
    assert lines[4] == ""
