"""`gapless report`: the figures as text, for a pull request or another program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.choosing import (
    FixFilter,
    GpuFilter,
    ModelFilter,
    RunFilter,
    ScenarioFilter,
    SinceFilter,
    SourceFilter,
    UntilFilter,
    chosen,
    store_to_read,
)
from gapless.cli.option_rules import refuse
from gapless.cli.options import ReadStoreOption, RedactOption
from gapless.saying import say, say_problems
from harness.errors import UsageError

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def command(
    ctx: typer.Context,
    output: Annotated[
        str, typer.Option("--format", metavar="md|csv|json", help="Markdown, CSV or JSON.")
    ] = "md",
    everything: Annotated[
        bool, typer.Option("--all", help="Every comparison, however many lines that takes.")
    ] = False,
    redact: RedactOption = False,
    store: ReadStoreOption = None,
    scenario: ScenarioFilter = None,
    model: ModelFilter = None,
    gpu: GpuFilter = None,
    fix: FixFilter = None,
    source: SourceFilter = None,
    since: SinceFilter = "",
    until: UntilFilter = "",
    run: RunFilter = None,
) -> None:
    """Print the figures of the chosen runs.

    Verdicts and intervals as text; in GitHub Actions also as the job's summary.
    """
    if output != "md":
        refuse(ctx, "everything", f"is for Markdown; --format {output} always has every comparison")
    filters = chosen(scenario, model, gpu, fix, source, since, until, run)

    from dashboard.markdown_report import csv_report, json_report, markdown_report
    from dashboard.redaction import redacted_run
    from dashboard.run_choice import choose_runs
    from dashboard.snapshot import take_snapshot
    from gapless.public_texts import public_texts

    snapshot = take_snapshot(store_to_read(store))
    say_problems(snapshot.problems)
    records = choose_runs(snapshot, filters)
    if redact:
        records = [redacted_run(record, public_texts()) for record in records]
    if output == "md":
        text = markdown_report(records, everything=everything)
        _append_summary(text)
    else:
        text = csv_report(records) if output == "csv" else json_report(records)
    say(text.removesuffix("\n"))


def _append_summary(text: str) -> None:
    path = os.environ.get(SUMMARY_VARIABLE)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise UsageError(
            f"${SUMMARY_VARIABLE} names {path}, which cannot be written: "
            f"{error.strerror or error}; unset it."
        ) from error
