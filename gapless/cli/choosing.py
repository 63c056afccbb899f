"""Options that choose runs, once for every verb that shows some."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dashboard.filters import Filters, parse_filters
from gapless.shipped import shipped_results
from harness.errors import UsageError
from harness.record.storage import STORE_VARIABLE

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
    given = {
        "scenario": scenario,
        "model": model,
        "gpu": gpu,
        "fix": fix,
        "source": source,
        "since": [since] if since else [],
        "until": [until] if until else [],
        "run": run,
    }
    return parse_filters({name: values for name, values in given.items() if values})


def store_to_read(store: str | None) -> str:
    """The store given, `$GAPLESS_STORE`, `results` here, or the records that came with gapless.

    Raises `UsageError` where one is named that is not there.
    """
    named = store or os.environ.get(STORE_VARIABLE)
    if named:
        if "://" not in named and not Path(named).expanduser().exists():
            origin = "" if store else f", which ${STORE_VARIABLE} names"
            raise UsageError(f"There is no store {named}{origin}; give the folder of some runs.")
        return named
    return "results" if Path("results").is_dir() else str(shipped_results())
