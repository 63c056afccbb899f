"""`gapless reproduce`: every published row, measured on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import (
    DeviceOption,
    JsonOption,
    PrecisionOption,
    StoreOption,
    TimelinesOption,
)
from gapless.cli.values import check_seconds, parse_precision
from harness.errors import UsageError

if TYPE_CHECKING:
    from gapless.sweep import Sweep

FITS = ("narrow", "layers", "full")
QUICK_SECONDS = 212.0
FULL_SECONDS = 870.0
"""A little under 4 and 15 minutes: the last step and the records come on top."""


def command(
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
    store: StoreOption = None,
    timelines: TimelinesOption = True,
    json: JsonOption = False,
) -> None:
    """Measure every published claim here.

    Prints published and measured figures side by side, with intervals, parity, the noise floor
    and remarks, and keeps one record a run.
    """
    if fit not in (None, *FITS):
        raise UsageError(f"--fit {fit} is unknown; choose one of {', '.join(FITS)}.")
    half_width = parse_precision(precision)
    usual_s = QUICK_SECONDS if quick else FULL_SECONDS
    limit_s = check_seconds(usual_s if seconds is None else seconds)

    from gapless.bench_run import check_store, default_device, default_store, variants_of
    from gapless.cli.progress import show_progress
    from gapless.published_runs import plan_runs, select_claims
    from gapless.sweep import sweep_claims
    from gapless.terminal_tables import print_table
    from harness.machine.machine import describe_machine
    from harness.tables.claim_rows import reproduce_table
    from scenarios.published import CLAIMS

    claims = select_claims(CLAIMS, only or ())
    place = device or default_device()
    describe_machine(place)  # an absent device is told here, in one sentence, not row by row
    root = store or default_store()
    check_store(root)
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
    print_table(reproduce_table(sweep.rows(claims)))
    _say_what_next(sweep, root)
    if json:
        from gapless.json_documents import reproduce_document

        print(reproduce_document(sweep.rows(claims), sweep.records))
    raise typer.Exit(sweep.exit_code)


def _say_what_next(sweep: Sweep, root: str) -> None:
    for record in sweep.records:
        for sentence in record.steadiness.warnings:
            print(f"Not steady, {record.scenario.name}: {sentence}")
    print()
    if sweep.records:
        print(f"Records: {len(sweep.records)} under {root}/, {sweep.records[0].id} first.")
    print("One claim for longer: gapless reproduce --only CLAIM --seconds 120")
    print("Your own arms:        gapless bench SCENARIO --ladder   (gapless list has the names)")
