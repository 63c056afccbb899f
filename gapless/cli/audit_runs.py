"""Carries out the audit of each kind of target and gives its results."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
import typer

from gapless.cli.audit_kinds import (
    DEFAULT_GPU,
    CallableOptions,
    ConfigOptions,
    FolderOptions,
    PairOptions,
    ScenarioOptions,
    TraceOptions,
)
from gapless.cli.audit_refusals import refuse_of_device
from gapless.saying import say_aside

if TYPE_CHECKING:
    from rich.console import Console

    from gapless.cli.audit_kinds import Options, ReportOptions, StepOptions
    from gapless.cli.results import Results
    from gapless.fixing import FixResult
    from harness.record.audit_report import AuditReport

PIPE_WIDTH = 120
"""Width where the output is no terminal."""
_NO_RACES = "--races found no memory that two streams use without an order."


def carry_out(ctx: typer.Context, options: Options, results: Results) -> None:
    """Audit what `options` name. Exits with 1 where `--fail-on new` finds something new."""
    if isinstance(options, CallableOptions):
        _audit_program(ctx, options, results)
    elif isinstance(options, ScenarioOptions | ConfigOptions):
        _audit_model(options, results)
    elif isinstance(options, FolderOptions):
        _audit_trace(options, results)
    elif isinstance(options, PairOptions):
        _compare_traces(options, results)
    else:
        assert_never(options)


def _audit_program(ctx: typer.Context, options: CallableOptions, results: Results) -> None:
    """A callable or a script: on this machine's GPU, else on an emulated one."""
    from gapless.audit_child import audit_emulated
    from gapless.program_audit import audit_on_gpu, audit_program, should_be_live

    live = should_be_live(options.gpu)
    refuse_of_device(ctx, options, live=live)

    def audit() -> AuditReport:
        if live:
            return audit_on_gpu(
                options.target,
                steps=options.steps,
                skip=options.skip,
                tensorboard=options.tensorboard,
            )
        # What --fix switches on is switched on in this process.
        run = audit_program if options.fix else audit_emulated
        return run(options.target, steps=options.steps, skip=options.skip, **_emulation(options))

    if options.fix:
        from gapless.fixing import audit_and_fix

        _show_fix(audit_and_fix(audit, seed=options.seed), results)
        return
    baseline = _baseline(options)
    _show(_with_races_told(audit(), options), baseline, options, results)


def _audit_model(options: ScenarioOptions | ConfigOptions, results: Results) -> None:
    from gapless.configured import choose_scenario
    from gapless.scenario_audit import audit_scenario, best_arm
    from scenarios.build_options import BuildOptions

    if isinstance(options, ScenarioOptions):
        scenario = choose_scenario(options.scenario, None)
    else:
        scenario = choose_scenario(None, options.config)
    build = BuildOptions.from_mapping(options.build)

    def audit(arm: str | None) -> AuditReport:
        return audit_scenario(
            scenario,
            build,
            arm=arm,
            scale=options.scale,
            steps=1 if options.steps is None else options.steps,
            warmup=1 if options.skip is None else options.skip,
            **_emulation(options),
        )

    if options.fix:
        from gapless.fixing import audit_arms

        arm = options.arm or best_arm(scenario)
        _show_fix(audit_arms(audit, arm, seed=options.seed), results)
        return
    baseline = _baseline(options)
    _show(_with_races_told(audit(options.arm), options), baseline, options, results)


def _audit_trace(options: FolderOptions, results: Results) -> None:
    """One trace, or a folder with one of each rank."""
    from harness.audit import trace
    from harness.findings.answering import with_answers
    from optimizations.optimization_catalogue import answers

    (path,) = options.target
    if isinstance(options, TraceOptions) and options.compat:
        from gapless.trace_tables import compat_table

        numbers = trace.compat_hta(path)
        results.table(compat_table(numbers))
        results.document(numbers)
        return
    baseline = _baseline(options)
    report = with_answers(trace.audit_trace(path), answers())
    if isinstance(options, TraceOptions):
        _write_copies(path, options)
    _show(report, baseline, options, results)


def _write_copies(path: str, options: TraceOptions) -> None:
    from harness.audit import trace

    if options.annotate is not None:
        trace.annotate(path, options.annotate)
        sentence = f"Annotated trace: {options.annotate} (open it in ui.perfetto.dev)"
        say_aside(sentence)
    if options.tensorboard is not None:
        from harness.audit.tensorboard import save_for_tensorboard

        saved = save_for_tensorboard(path, options.tensorboard)
        command = shlex.join(["tensorboard", "--logdir", options.tensorboard])
        say_aside(f"For TensorBoard: {saved} ({command})")


def _compare_traces(options: PairOptions, results: Results) -> None:
    from gapless.trace_tables import comparison_table
    from harness.audit import trace

    first, second = (trace.audit_trace(path) for path in options.target)
    comparison = trace.compare_audits(first, second, everything=options.everything)
    results.table(comparison_table(comparison))
    results.document(comparison)


def _emulation(options: StepOptions) -> dict[str, Any]:
    """What an audit on an emulated GPU takes besides its target and steps."""
    from harness.audit.emulated.audit_clock import ClockOptions

    return {
        "gpu": options.gpu or DEFAULT_GPU,
        "mode": options.mode,
        "routing": options.routing,
        "seed": options.seed,
        "clock": ClockOptions(
            without=options.without,
            gpus=options.on,
            # Where it lies now: audited code may change the folder.
            timeline=options.timeline and str(Path(options.timeline).absolute()),
            races=options.races,
        ),
    }


def _with_races_told(report: AuditReport, options: StepOptions) -> AuditReport:
    """The report with a note where races were looked for and none was found."""
    if not options.races or report.races:
        return report
    return msgspec.structs.replace(report, notes=(*report.notes, _NO_RACES))


def _baseline(options: ReportOptions) -> AuditReport | None:
    from harness.audit.known_sites import read_baseline

    return None if options.baseline is None else read_baseline(options.baseline)


def _show(
    report: AuditReport,
    baseline: AuditReport | None,
    options: ReportOptions,
    results: Results,
) -> None:
    """Print the report, or what of it the baseline lacks; exits with 1 where that is asked for."""
    from harness.audit.known_sites import since_baseline
    from harness.tables.audit_text import print_report

    if baseline is not None:
        report = since_baseline(report, baseline)
    results.document(report)
    if not results.json:
        print_report(report, _console(), top=options.top, everything=options.everything)
    if options.fail_on == "new" and report.sites:
        raise typer.Exit(1)


def _show_fix(result: FixResult, results: Results) -> None:
    from gapless.fixing import fix_table

    results.table(fix_table(result))
    results.document(result)


def _console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if terminal else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False)
