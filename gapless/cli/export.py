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
from gapless.cli.options import RedactOption, StoreOption
from harness.errors import UsageError

if TYPE_CHECKING:
    from dashboard.html_export import PlotlyJs


def command(
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
    store: StoreOption = None,
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
    if plotlyjs not in ("inline", "cdn", "directory"):
        raise UsageError(f"--plotlyjs {plotlyjs!r} is none; write inline, cdn or directory.")
    filters = chosen(scenario, model, gpu, fix, source, since, until, run)

    from dashboard.html_export import collect, export_file, export_site
    from dashboard.snapshot import take_snapshot

    snapshot = take_snapshot(store_to_read(store))
    runs = collect(snapshot, snapshot.select(filters), redact=redact)
    if not runs:
        raise UsageError(
            f"The store {snapshot.root} has no run that the filters keep; "
            "leave one out, or measure with `gapless reproduce`."
        )
    if site:
        export_site(runs, out)
        print(f"{len(runs)} runs: {out / 'index.html'}")
        return
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out} is no .html file; name one, or add --site for a folder.")
    export_file(runs, out, cast("PlotlyJs", plotlyjs))
    print(f"{len(runs)} runs, {out.stat().st_size / 1e6:.1f} MB: {out}")
