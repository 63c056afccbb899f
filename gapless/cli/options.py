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
ReadStoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DIR|URL",
        help="Where records are kept: a folder or an fsspec URL [default: $GAPLESS_STORE, results, "
        "or the records that ship with gapless]",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cpu, cuda, cuda:1, or emulated:B200 for a GPU that is not here, whose times are "
        "modelled [default: cuda where there is one]",
    ),
]
RealDeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="cpu, cuda, cuda:1 [default: cuda where there is one]"
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision", metavar="PERCENT", help="Stop once every interval is this narrow, +-."
    ),
]
NoStoreOption = Annotated[bool, typer.Option("--no-store", help="Keep no record.")]
TimelinesOption = Annotated[
    bool,
    typer.Option(
        "--timelines/--no-timelines",
        help="Keep the timeline of each arm with the record, where a GPU runs it or is modelled.",
    ),
]
RedactOption = Annotated[
    bool,
    typer.Option(
        "--redact/--no-redact", help="Leave out host names, user names, paths and commands."
    ),
]

ScenarioArgument = Annotated[
    str | None, typer.Argument(help="A name from `gapless list`.", show_default=False)
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE|DIR|ID",
        help="Instead of a scenario: the config.json of any causal language model.",
    ),
]
TokensOption = Annotated[
    int | None, typer.Option("--tokens", help="Tokens in one batch, padding included.")
]
DocumentsOption = Annotated[
    int | None, typer.Option("--documents", help="Documents wanted in one batch.")
]
AttentionOption = Annotated[
    str | None, typer.Option("--attention", help="sdpa-mask, varlen, or a name the library knows.")
]
CheckpointingOption = Annotated[
    bool | None,
    typer.Option("--checkpointing/--no-checkpointing", help="Recompute each layer, or none."),
]
LayersOption = Annotated[
    int | None, typer.Option("--layers", help="Layers instead of the model's own.")
]
