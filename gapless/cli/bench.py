"""`gapless bench`: any arms on one scenario."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.option_rules import refuse
from gapless.cli.options import (
    AttentionOption,
    CheckpointingOption,
    ConfigOption,
    DeviceOption,
    DocumentsOption,
    JsonOption,
    LayersOption,
    NoStoreOption,
    PrecisionOption,
    ScenarioArgument,
    StoreOption,
    TimelinesOption,
    TokensOption,
)
from gapless.cli.output import unless_hung_up
from gapless.cli.results import Results, results_of
from gapless.cli.values import check_keeping, check_seconds, kept_line, parse_precision
from harness.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gapless.arms import Choices
    from harness.bench.interrupts import Interrupts
    from harness.bench.plan import BenchPlan
    from harness.record.records import Arm, RunRecord


def command(
    ctx: typer.Context,
    scenario: ScenarioArgument = None,
    config: ConfigOption = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="OPT=VARIANT[,...]",
            help="An arm, as `gapless list` names optimizations and variants; may be repeated. "
            "`baseline` comes first by itself.",
        ),
    ] = None,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="The published fixes, each added in turn.")
    ] = False,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="All published fixes, and all but each one.")
    ] = False,
    grid: Annotated[
        bool, typer.Option("--grid", help="Every combination of the published fixes.")
    ] = False,
    toggle: Annotated[
        list[str] | None,
        typer.Option(
            "--toggle",
            metavar="OPT",
            help="An optimization for --ladder, --leave-one-out and --grid; may be repeated "
            "[default: all that apply to the scenario]",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time to measure, from the end of the build.")
    ] = 60.0,
    precision: PrecisionOption = "1%",
    device: DeviceOption = None,
    fit: Annotated[
        str,
        typer.Option(
            "--fit",
            metavar="narrow|full",
            help="narrow keeps layers, experts and documents and shrinks widths to fit this "
            "machine; full is the real size.",
        ),
    ] = "narrow",
    tokens: TokensOption = None,
    documents: DocumentsOption = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="float32|bfloat16", help="Of the weights.")
    ] = None,
    attention: AttentionOption = None,
    checkpointing: CheckpointingOption = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help=".jsonl, .parquet or .txt to pack."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="DIR", help="Folder of a tokenizer, or `bytes`."),
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", metavar="DIR|ID", help="A folder, a hub id, or `random`.")
    ] = "random",
    layers: LayersOption = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Threads torch uses for one op.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of weights, packing and order.")] = 0,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    timelines: TimelinesOption = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare any fixes on one scenario.

    Arms are timed in randomised, interleaved blocks on one model; parity comes before speed.
    """
    check_seconds(seconds)
    half_width = parse_precision(precision)
    if dry_run:
        for name in ("store", "no_store"):
            refuse(ctx, name, "is about the record, and --dry-run makes none")

    from gapless.bench_run import applicable, default_device, make_plan, variants_of
    from gapless.configured import choose_scenario
    from scenarios.build_options import BuildOptions

    place = device or default_device()
    check_keeping(ctx, store, no_store, device=place)
    chosen = choose_scenario(scenario, config)
    arms = _arms(
        variants_of(applicable(chosen)),
        texts=arm or [],
        layouts={"--ladder": ladder, "--leave-one-out": leave_one_out, "--grid": grid},
        toggle=toggle or [],
    )
    asked = {
        "device": place,
        "fit": fit,
        "tokens": tokens,
        "documents": documents,
        "dtype": dtype,
        "attention": attention,
        "checkpointing": checkpointing,
        "data": data,
        "tokenizer": tokenizer,
        "weights": weights,
        "num_layers": layers,
        "seed": seed,
    }
    plan = make_plan(
        chosen,
        arms,
        BuildOptions.from_mapping({k: v for k, v in asked.items() if v is not None}),
        budget_s=seconds,
        precision=half_width,
        num_threads=threads,
        seed=seed,
        keep_timelines=timelines,
        command=shlex.join(["gapless", *sys.argv[1:]]),
    )
    with results_of(json) as results:
        if dry_run:
            _show_plan(plan, results)
        else:
            raise typer.Exit(_run(plan, results, store=store, keep=not no_store))


def _arms(
    choices: Choices,
    *,
    texts: list[str],
    layouts: dict[str, bool],
    toggle: list[str],
) -> tuple[Arm, ...]:
    from gapless.arms import grid, ladder, leave_one_out, parse_arms

    asked = [name for name, wanted in layouts.items() if wanted] + ["--arm"] * bool(texts)
    if len(asked) != 1:
        given = f"{' and '.join(asked)} were given" if asked else "none was given"
        raise UsageError(
            f"Say which arms in one way, and {given}: --arm OPT=VARIANT (repeated), --ladder, "
            "--leave-one-out or --grid."
        )
    if texts:
        if toggle:
            raise UsageError("--toggle goes with --ladder, --leave-one-out and --grid only.")
        return parse_arms(texts, choices)
    unknown = [name for name in toggle if name not in choices]
    if unknown:
        raise UsageError(
            f"--toggle {unknown[0]!r} is no optimization of this scenario; "
            f"it takes {', '.join(choices)}."
        )
    toggled = {name: choices[name] for name in choices if not toggle or name in toggle}
    layout = {"--ladder": ladder, "--leave-one-out": leave_one_out, "--grid": grid}[asked[0]]
    return layout(toggled)


def _show_plan(plan: BenchPlan, results: Results) -> None:
    from harness.tables.grid import Table

    toggled = tuple(dict.fromkeys(name for arm in plan.arms for name in arm.variants))
    rows = tuple(
        (arm.name, arm.role, *(arm.variants.get(name, "") for name in toggled)) for arm in plan.arms
    )
    title = (
        f"{plan.scenario} on {plan.device}: {len(plan.arms)} arms, at most {plan.budget_s:g} s "
        f"from the end of the build, or until every interval is +-{plan.precision:.2%}"
    )
    results.table(Table(columns=("Arm", "Role", *toggled), rows=rows, title=title))
    options: dict[str, Any] = plan.spec["options"]
    results.text(
        ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)
    )
    results.document(plan)


def _run(plan: BenchPlan, results: Results, *, store: str | None, keep: bool) -> int:
    from gapless.bench_run import check_store, keep_run
    from gapless.cli.progress import show_progress
    from gapless.json_documents import run_document
    from harness.bench.interrupts import Interrupts
    from harness.bench.runner import run_plan
    from harness.record.attachments import Attachments
    from harness.record.storage import default_store
    from harness.tables.run_tables import run_tables

    root = (store or default_store()) if keep else None
    if root is not None:
        check_store(root)
    kept = Attachments()
    not_kept: StoreError | None = None
    with Interrupts() as interrupts:
        with show_progress(plan.scenario) as on_progress:
            record, samples = run_plan(
                plan, on_progress=on_progress, interrupts=interrupts, attachments=kept
            )
        if root is not None:
            try:
                record = keep_run(root, record, samples, kept)
            except StoreError as error:
                # The figures are shown all the same: they took minutes, and the disk may be full.
                not_kept = error
    code = _exit_code(record, interrupts)
    with unless_hung_up(code):
        for table in run_tables(record):
            if table.rows:
                results.table(table)
        for sentence in (*record.notes, *record.steadiness.warnings):
            results.text(f"Note: {sentence}")
        if record.reason:
            results.text(f"{record.status.capitalize()}: {record.reason}")
        if root is not None and not_kept is None:
            results.text(kept_line(root, f"Record: {record.id} under"))
    results.document(run_document(record))
    if not_kept is not None:
        raise not_kept
    return code


def _exit_code(record: RunRecord, interrupts: Interrupts) -> int:
    if interrupts.count:
        return interrupts.exit_code
    if record.status == "failed":
        return 3
    return int(any(not check.passed for check in record.parity))
