"""`gapless export`: results as one file or a folder of pages that need no server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

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
from harness.counts import counted
from harness.errors import UsageError

if TYPE_CHECKING:
    from dashboard.html_export import PlotlyJs


def command(
    ctx: typer.Context,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="An .html file, or with --site a folder.")
    ],
    site: Annotated[
        bool, typer.Option("--site", help="A page for each run, for any web host.")
    ] = False,
    plotlyjs: Annotated[
        str,
        typer.Option(
            "--plotlyjs",
            metavar="inline|cdn|directory",
            help="Where the page has its charts' script from: itself, the net, or a file beside.",
        ),
    ] = "inline",
    redact: RedactOption = True,
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
    """Write the chosen runs as interactive pages that work offline."""
    if site:
        refuse(ctx, "plotlyjs", "is for one page; those of --site share a file with the script")
    elif out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out} is no .html file; name one, or add --site for a folder.")
    filters = chosen(scenario, model, gpu, fix, source, since, until, run)

    from dashboard.html_export import collect, export_file, export_site
    from dashboard.run_choice import choose_runs
    from dashboard.snapshot import take_snapshot
    from gapless.public_texts import public_texts

    snapshot = take_snapshot(store_to_read(store))
    say_problems(snapshot.problems)
    chosen_runs = choose_runs(snapshot, filters)
    runs = collect(snapshot, chosen_runs, redact=redact, public=public_texts())
    if site:
        export_site(runs, out)
        say(f"{counted(len(runs.records), 'run')}: {out / 'index.html'}")
        return
    export_file(runs, out, cast("PlotlyJs", plotlyjs))
    say(f"{counted(len(runs.records), 'run')}, {out.stat().st_size / 1e6:.1f} MB: {out}")
