"""`gapless model`: what each arm gives on GPUs that are not here, by the virtual clock."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from gapless.cli.options import (
    AttentionOption,
    CheckpointingOption,
    ConfigOption,
    DocumentsOption,
    JsonOption,
    LayersOption,
    NoStoreOption,
    ScenarioArgument,
    StoreOption,
    TimelinesOption,
    TokensOption,
)
from gapless.cli.values import check_keeping


def command(
    gpu: Annotated[
        list[str],
        typer.Option("--gpu", metavar="GPU", help="A GPU of the catalogue; may be repeated."),
    ],
    arm: Annotated[
        list[str],
        typer.Option(
            "--arm",
            metavar="OPT=VARIANT[,...]",
            help="An arm, such as checkpoint-reload=double-buffer; may be repeated. `baseline` "
            "comes first by itself.",
        ),
    ],
    scenario: ScenarioArgument = None,
    config: ConfigOption = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="OPT=VARIANT",
            help="What every arm has besides, the baseline too; may be repeated.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME=RANGE",
            help="tokens=2k..64k, documents=1..512, layers=8,16 or experts=8..128 (in doublings); "
            "may be repeated.",
        ),
    ] = None,
    fit: Annotated[
        str, typer.Option("--fit", metavar="narrow|full", help="The real size, or narrowed.")
    ] = "full",
    adapter: Annotated[
        str, typer.Option("--adapter", metavar="none|lora", help="What is trained.")
    ] = "lora",
    tokens: TokensOption = None,
    documents: DocumentsOption = None,
    attention: AttentionOption = None,
    checkpointing: CheckpointingOption = None,
    layers: LayersOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    timelines: TimelinesOption = True,
    json: JsonOption = False,
) -> None:
    """Model arms on GPUs that are not here.

    Step time, exposed time, overlap and memory: the bench's own code runs on the emulated device,
    whose clock is a model. Nothing is measured.
    """
    from gapless.arms import parse_arms, parse_variants
    from gapless.bench_run import applicable, check_store, default_store, variants_of
    from gapless.cli.progress import show_progress
    from gapless.configured import choose_scenario
    from gapless.modelled import SWEPT, model_scenario, modelled_table, parse_sweep, points
    from gapless.terminal_tables import print_table
    from harness.bench.interrupts import Interrupts
    from harness.clock.gpus import find_gpu

    check_keeping(store, no_store)
    chosen = choose_scenario(scenario, config)
    choices = variants_of(applicable(chosen))
    settings = parse_variants(",".join(setting), choices) if setting else {}
    arms = parse_arms(arm, choices, settings=settings)
    asked = {
        "fit": fit,
        "adapter": adapter,
        "tokens": tokens,
        "documents": documents,
        "attention": attention,
        "checkpointing": checkpointing,
        "num_layers": layers,
    }
    options = {name: value for name, value in asked.items() if value is not None}
    gpus = [find_gpu(name).key for name in gpu]
    root = None if no_store else store or default_store()
    if root is not None:
        check_store(root)
    runs = []
    with Interrupts() as interrupts:
        for point in points(gpus, parse_sweep(sweep or ())):
            varied = {SWEPT[name]: value for name, value in point.varied.items()}
            with show_progress(f"{chosen.name} on {point.gpu}") as on_progress:
                record = model_scenario(
                    chosen,
                    arms,
                    point.gpu,
                    {**options, **varied},
                    store=root,
                    keep_timelines=timelines,
                    command=shlex.join(["gapless", *sys.argv[1:]]),
                    on_progress=on_progress,
                    interrupts=interrupts,
                )
            runs.append((point, record))
            if interrupts.count:
                break
    print_table(modelled_table(runs))
    for point, record in runs:
        if record.status == "incomplete":
            print(f"{point.gpu}: incomplete. {record.reason}")
    if root is not None:
        print(f"Records: {len(runs)} under {root.rstrip('/')}/, source `modelled`.")
    if json:
        from gapless.json_documents import indented
        from harness.record.records import SCHEMA_VERSION

        print(indented({"schema": SCHEMA_VERSION, "runs": [record for _, record in runs]}))
    if interrupts.count:
        raise typer.Exit(130)
    raise typer.Exit(3 if any(record.status == "failed" for _, record in runs) else 0)
