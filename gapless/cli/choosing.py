"""Options that choose runs, once for every verb that shows some."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from dashboard.filters import Filters
from gapless.shipped import shipped_results
from harness.errors import UsageError

ScenarioFilter = Annotated[
    list[str] | None,
    typer.Option("--scenario", metavar="NAME", help="Only this scenario; may be repeated."),
]
ModelFilter = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="Only this model; may be repeated."),
]
GpuFilter = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="NAME", help="Only this GPU, or cpu; may be repeated."),
]
FixFilter = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="NAME", help="Only runs that toggle it; may be repeated."),
]
SourceFilter = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="measured|modelled", help="Only figures of this source."),
]
SinceFilter = Annotated[
    str, typer.Option("--since", metavar="DATE", help="From this day on, 2026-01-31.")
]
UntilFilter = Annotated[
    str, typer.Option("--until", metavar="DATE", help="Up to this day, included.")
]
RunFilter = Annotated[
    list[str] | None, typer.Option("--run", metavar="ID", help="Only this run; may be repeated.")
]


def chosen(
    scenario: list[str] | None,
    model: list[str] | None,
    gpu: list[str] | None,
    fix: list[str] | None,
    source: list[str] | None,
    since: str,
    until: str,
    run: list[str] | None,
) -> Filters:
    """The options as one value. Raises `UsageError` for a day or source that is none."""
    for name, day in (("--since", since), ("--until", until)):
        if day and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day):
            raise UsageError(f"{name} {day!r} is no day; write it as 2026-01-31.")
    for word in source or ():
        if word not in ("measured", "modelled"):
            raise UsageError(f"--source {word!r} is none; write measured or modelled.")
    return Filters(
        scenario=tuple(scenario or ()),
        model=tuple(model or ()),
        gpu=tuple(gpu or ()),
        fix=tuple(fix or ()),
        source=tuple(source or ()),
        since=since,
        until=until,
        run=tuple(run or ()),
    )


def store_to_read(store: str | None) -> str:
    """The store given, `$GAPLESS_STORE`, `results` here, or the records that came with gapless."""
    if store or os.environ.get("GAPLESS_STORE"):
        return store or os.environ["GAPLESS_STORE"]
    return "results" if Path("results").is_dir() else str(shipped_results())
