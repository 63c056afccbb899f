"""`gapless model`: what each arm gives on GPUs that are not here, by the virtual clock."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.option_rules import refuse
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
from gapless.cli.output import unless_hung_up
from gapless.cli.results import results_of
from gapless.cli.values import check_keeping, kept_line
from harness.counts import counted
from harness.errors import UsageError
from harness.record.records import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.modelled import Point
    from harness.record.records import Arm, RunRecord
    from scenarios.scenario_catalogue import Scenario


def command(
    ctx: typer.Context,
    gpu: Annotated[
        list[str],
        typer.Option("--gpu", metavar="GPU", help="A GPU of the catalogue; may be repeated."),
    ],
    arm: Annotated[
        list[str],
        typer.Option(
            "--arm",
            metavar="OPT=VARIANT[,...]",
            help="An arm, as `gapless list` names optimizations and variants; may be repeated. "
            "`baseline` comes first by itself.",
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
    whose clock is a model. Nothing is measured. A run takes this machine from seconds to some
    minutes, the longer the more layers, experts and arms; the time so far and to come is told.
    """
    from gapless.arms import parse_arms, parse_variants
    from gapless.bench_run import applicable, check_store, variants_of
    from gapless.configured import choose_scenario
    from gapless.modelled import modelled_table, parse_sweep, points
    from harness.record.storage import default_store

    check_keeping(ctx, store, no_store)
    swept = parse_sweep(sweep or ())
    for name in swept:
        if name in ctx.params:
            refuse(ctx, name, f"has no effect beside --sweep {name}=...")
    chosen = choose_scenario(scenario, config)
    choices = variants_of(applicable(chosen))
    settings = parse_variants(",".join(setting), choices) if setting else {}
    asked = {
        "fit": fit,
        "adapter": adapter,
        "tokens": tokens,
        "documents": documents,
        "attention": attention,
        "checkpointing": checkpointing,
        "num_layers": layers,
    }
    root = None if no_store else store or default_store()
    if root is not None:
        check_store(root)
    with results_of(json) as results:
        modelled = _Sweep(
            scenario=chosen,
            arms=parse_arms(arm, choices, settings=settings),
            options={name: value for name, value in asked.items() if value is not None},
            store=root,
            keep_timelines=timelines,
        ).run(points(_gpus(gpu), swept))
        with unless_hung_up(modelled.stop_code):
            if modelled.runs or modelled.refused is None:
                results.table(modelled_table(modelled.runs))
                results.document({"schema": SCHEMA_VERSION, "runs": [r for _, r in modelled.runs]})
            for point, record in modelled.runs:
                if record.status == "incomplete":
                    results.text(f"{point.gpu}: incomplete. {record.reason}")
            if root is not None and modelled.runs:
                records = counted(len(modelled.runs), "record")
                results.text(kept_line(root, f"Kept with source `modelled`: {records} under"))
        if modelled.refused is not None:
            raise modelled.refused
        raise typer.Exit(modelled.exit_code)


def _gpus(names: list[str]) -> list[str]:
    """The keys of these GPUs. Raises `UsageError` for an unknown one, or one named twice."""
    from harness.clock.gpus import find_gpu

    keys = [find_gpu(name).key for name in names]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(f"--gpu {twice} is given {keys.count(twice)} times; give it once.")
    return keys


@dataclass(frozen=True)
class _Modelled:
    """What came of a sweep."""

    runs: list[tuple[Point, RunRecord]]
    stop_code: int | None
    """The exit code of the signal that ended the sweep early."""
    refused: UsageError | None
    """Why a point cannot be modelled, where one cannot; those after it were not tried."""

    @property
    def exit_code(self) -> int:
        if self.stop_code is not None:
            return self.stop_code
        return 3 if any(record.status == "failed" for _, record in self.runs) else 0


@dataclass(frozen=True)
class _Sweep:
    """The same arms modelled at each point."""

    scenario: Scenario
    arms: tuple[Arm, ...]
    options: Mapping[str, Any]
    store: str | None
    keep_timelines: bool

    def run(self, points: Sequence[Point]) -> _Modelled:
        from gapless.cli.progress import TimeLeft, show_progress
        from gapless.modelled import SWEPT, model_scenario
        from harness.bench.interrupts import Interrupts

        runs: list[tuple[Point, RunRecord]] = []
        refused: UsageError | None = None
        left = TimeLeft(len(points))
        with Interrupts() as interrupts:
            for point in points:
                varied = {SWEPT[name]: value for name, value in point.varied.items()}
                left.say(f"{self.scenario.name} on {point.gpu}")
                try:
                    with show_progress(f"{self.scenario.name} on {point.gpu}") as on_progress:
                        record = model_scenario(
                            self.scenario,
                            self.arms,
                            point.gpu,
                            {**self.options, **varied},
                            store=self.store,
                            keep_timelines=self.keep_timelines,
                            command=shlex.join(["gapless", *sys.argv[1:]]),
                            on_progress=on_progress,
                            interrupts=interrupts,
                        )
                except UsageError as error:
                    refused = error
                    break
                runs.append((point, record))
                if interrupts.count:
                    break
        stop_code = interrupts.exit_code if interrupts.count else None
        return _Modelled(runs, stop_code, refused)
