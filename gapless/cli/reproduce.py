"""`gapless reproduce`: every published row, measured on this machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.option_rules import flag_of, is_given
from gapless.cli.options import (
    DeviceOption,
    JsonOption,
    PrecisionOption,
    StoreOption,
    TimelinesOption,
)
from gapless.cli.output import unless_hung_up
from gapless.cli.results import results_of
from gapless.cli.values import check_keeping, check_seconds, kept_line, parse_precision
from gapless.saying import say_aside
from gapless.shortfall import below, seconds_for, shortfalls, told
from harness.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gapless.shortfall import Shortfall
    from gapless.sweep import Sweep
    from harness.tables.claim_rows import ReproduceRow

QUICK_SECONDS = 212.0
FULL_SECONDS = 870.0
"""A little under 4 and 15 minutes: the last step and the records come on top."""


EXIT_TOO_FEW_BLOCKS = 4


def command(
    ctx: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="At most 4 minutes in all, with wider intervals.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CLAIM", help="Only this claim; may be repeated."),
    ] = None,
    device: DeviceOption = None,
    fit: Annotated[
        str | None,
        typer.Option(
            "--fit",
            metavar="narrow|layers|full",
            help="narrow shrinks widths and keeps layers; layers keeps widths and takes as many "
            "layers as train on one 80 GB GPU; full is the real size "
            "[default: narrow on a CPU, layers on a GPU]",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Time for all runs [default: 870, with --quick 212]"),
    ] = None,
    precision: PrecisionOption = "1%",
    min_blocks: Annotated[
        int | None,
        typer.Option(
            "--min-blocks",
            help=f"Exit {EXIT_TOO_FEW_BLOCKS} where a row has fewer timed blocks than this.",
        ),
    ] = None,
    store: StoreOption = None,
    timelines: TimelinesOption = True,
    json: JsonOption = False,
) -> None:
    """Measure every published claim here.

    Prints published and measured figures side by side, with intervals, parity, the noise floor
    and remarks, and keeps one record a run.
    """
    half_width = parse_precision(precision)
    usual_s = QUICK_SECONDS if quick else FULL_SECONDS
    limit_s = check_seconds(usual_s if seconds is None else seconds)

    from gapless.bench_run import check_store, default_device, variants_of
    from gapless.cli.progress import show_progress
    from gapless.json_documents import reproduce_document
    from gapless.published_runs import plan_runs, select_claims
    from gapless.sweep import sweep_claims
    from harness.machine.machine import describe_machine
    from harness.record.storage import default_store
    from harness.tables.claim_rows import reproduce_table
    from scenarios.published import CLAIMS

    claims = select_claims(CLAIMS, only or ())
    place = device or default_device()
    describe_machine(place)  # an absent device is told here, in one sentence, not row by row
    check_keeping(ctx, store, False, device=place)
    root = store or default_store()
    check_store(root)
    with results_of(json) as results:
        sweep = sweep_claims(
            plan_runs(claims),
            variants_of(),
            device=place,
            fit=fit or ("narrow" if place == "cpu" else "layers"),
            seconds=limit_s,
            precision=half_width,
            thorough=not quick,
            keep_timelines=timelines,
            store=root,
            show=lambda label, later_s: show_progress(label, later_s=later_s),
        )
        rows = sweep.rows(claims)
        missed = shortfalls(rows)
        with unless_hung_up(sweep.exit_code):
            results.table(reproduce_table(rows))
            for sentence in _what_next(ctx, sweep, rows, missed, root):
                results.text(sentence)
        results.document({**reproduce_document(rows, sweep.records), "not_reached": missed})
        few = below(rows, min_blocks) if min_blocks is not None else ()
        if few:
            have = "has" if len(few) == 1 else "have"
            say_aside(f"--min-blocks {min_blocks}: {counted(len(few), 'row')} {have} fewer blocks.")
        raise typer.Exit(sweep.exit_code or (EXIT_TOO_FEW_BLOCKS if few else 0))


def _what_next(
    ctx: typer.Context,
    sweep: Sweep,
    rows: Sequence[ReproduceRow],
    missed: Sequence[Shortfall],
    root: str,
) -> Iterator[str]:
    for record in sweep.records:
        for sentence in record.steadiness.warnings:
            yield f"Not steady, {record.scenario.name}: {sentence}"
    yield ""
    if sweep.records:
        records = counted(len(sweep.records), "record")
        yield kept_line(root, f"{records}, {sweep.records[0].id} first, under")
    yield from told(missed, len(rows))
    if missed:
        seconds = seconds_for(missed, sweep.records)
        yield f"Longer for these:     {_again(ctx, missed, seconds)}"
    else:
        yield "One claim for longer: gapless reproduce --only CLAIM --seconds 120"
    yield "Your own arms:        gapless bench SCENARIO --ladder   (gapless list has the names)"


def _again(ctx: typer.Context, missed: Sequence[Shortfall], seconds: int) -> str:
    """The command that measures these claims for longer, set up as this one."""
    words = ["gapless", "reproduce"]
    for one in missed:
        words += ["--only", one.claim]
    words += ["--seconds", str(seconds)]
    for name in ("device", "fit", "precision", "min_blocks", "store"):
        if is_given(ctx, name):
            words += [flag_of(ctx, name), str(ctx.params[name])]
    return shlex.join(words)
