"""Options that several verbs take, once."""

from __future__ import annotations

from typing import Annotated

import typer

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DIR|URL",
        help="Where records are kept: a folder or an fsspec URL [default: $GAPLESS_STORE, results]",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="cpu, cuda, cuda:1 [default: cuda where there is one]"
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document last, after the table.")
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision", metavar="PERCENT", help="Stop once every interval is this narrow, +-."
    ),
]
