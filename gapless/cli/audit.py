"""`gapless audit`: what makes the host wait, in a step, a script, a scenario or a trace."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.options import ConfigOption, JsonOption
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from gapless.fixing import FixResult
    from harness.audit.emulated.emulated_audit import Mode
    from harness.record.audit_report import AuditReport
    from harness.tables.grid import Table
    from scenarios.scenario_catalogue import Scenario

PIPE_WIDTH = 120
"""Width where the output is no terminal."""
DEFAULT_GPU = "H100"
TRACE_ENDINGS = (".json", ".gz")


def command(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            help="FILE.py:CALLABLE, package.module:callable, a script (its own arguments after "
            "--), a trace, a folder of traces, or two traces to compare.",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="A name from `gapless list`.")
    ] = None,
    config: ConfigOption = None,
    fit: Annotated[
        str, typer.Option("--fit", metavar="narrow|full", help="Of the scenario.")
    ] = "narrow",
    arm: Annotated[
        str | None,
        typer.Option(
            "--arm", metavar="OPT=VARIANT[,...]", help="Of the scenario [default: its baseline]"
        ),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option("--attention", help="Of the scenario: eager, sdpa, flash_attention_2, ..."),
    ] = None,
    checkpointing: Annotated[
        bool | None,
        typer.Option("--checkpointing/--no-checkpointing", help="Of the scenario."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Of the scenario: tokens in one batch.")
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", help="Of the scenario.")] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            metavar="layers|experts",
            help="Also audit the scenario at small sizes, and say how each count grows.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Emulate this GPU [default: the GPU of this machine, else an emulated H100]",
        ),
    ] = None,
    values: Annotated[
        bool | None,
        typer.Option(
            "--values/--shapes",
            help="Compute real values, or shapes only [default: values while they are small]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", help="Steps to count [default: 1; of a script all]"),
    ] = None,
    skip: Annotated[
        int | None, typer.Option("--skip", help="Steps before that, not counted [default: 1]")
    ] = None,
    routing: Annotated[
        str,
        typer.Option("--routing", metavar="uniform|skewed", help="How shapes only picks experts."),
    ] = "uniform",
    seed: Annotated[int, typer.Option("--seed", help="Of what shapes only picks.")] = 0,
    top: Annotated[int, typer.Option("--top", help="Sites to show.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every site, and figures that did not move.")
    ] = False,
    annotate: Annotated[
        str | None,
        typer.Option("--annotate", metavar="OUT.json.gz", help="Write the trace with findings."),
    ] = None,
    compat: Annotated[
        str | None,
        typer.Option("--compat", metavar="hta", help="Print another tool's numbers by its rules."),
    ] = None,
    tensorboard: Annotated[
        str | None,
        typer.Option("--tensorboard", metavar="DIR", help="Put the trace where TensorBoard looks."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="GPU", help="Also say what the costliest sites cost on this GPU."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="FILE:LINE", help="Model the step as if this site did not wait."
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline",
            metavar="OUT.json.gz",
            help="Write the modelled timeline of the last step as a trace for Perfetto.",
        ),
    ] = None,
    races: Annotated[
        bool,
        typer.Option("--races", help="Look for memory that two streams use without an order."),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Turn on the optimizations that the findings name, and audit again."
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="AUDIT.json", help="Show only sites that this audit lacks."
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="new", help="Exit 1 where there is a new site."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find what makes the host wait for the GPU.

    By source line, with the cost and the remedy. Needs no GPU: a step or script runs on an emulated
    one.
    """
    words = target or []
    if [bool(words), scenario is not None, config is not None].count(True) != 1:
        raise UsageError(
            "Name one thing to audit: a step, a script, a trace, --scenario NAME or --config FILE."
        )
    if routing not in ("uniform", "skewed"):
        raise UsageError(f"--routing {routing} is unknown; choose uniform or skewed.")
    from harness.audit.emulated.audit_clock import ClockOptions

    emulation: dict[str, Any] = {
        "gpu": gpu,
        "mode": _mode(values),
        "routing": routing,
        "seed": seed,
        "clock": ClockOptions(
            without=tuple(without or ()), gpus=tuple(on or ()), timeline=timeline, races=races
        ),
    }
    if fail_on not in (None, "new"):
        raise UsageError(f"--fail-on {fail_on} is unknown; there is new.")
    if fail_on is not None and baseline is None:
        raise UsageError("--fail-on new needs --baseline AUDIT.json to compare with.")
    shown = _Shown(
        top=top, everything=everything, json=json, baseline=_baseline(baseline), gate=bool(fail_on)
    )
    if not words:
        from gapless.configured import choose_scenario

        chosen = choose_scenario(scenario, config)
        choices = {
            "fit": fit,
            "attention": attention,
            "checkpointing": checkpointing,
            "tokens": tokens,
            "num_layers": layers,
        }
        options = {name: value for name, value in choices.items() if value is not None}

        def audit(variants: str | None) -> AuditReport:
            return _scenario(chosen, options, variants, scale, steps, skip, emulation)

        if fix:
            _fixed(_fixed_scenario(chosen, audit, arm, seed), shown)
        else:
            shown.report(audit(arm))
        return
    if _is_trace(words[0]):
        _refuse({"--fix": fix or None}, f"runs code, and {words[0]} is a trace of some")
        _traces(words, shown, annotate=annotate, compat=compat, tensorboard=tensorboard)
        return
    _refuse({"--annotate": annotate, "--compat": compat}, f"reads a trace; {words[0]} is none")
    _refuse(
        {"--scale": scale, "--arm": arm, "--attention": attention},
        "belongs to --scenario and --config",
    )
    if fix:
        from gapless.fixing import audit_and_fix

        _fixed(
            audit_and_fix(lambda: _program(words, steps, skip, emulation, tensorboard), seed=seed),
            shown,
        )
        return
    shown.report(_program(words, steps, skip, emulation, tensorboard))


@dataclass(frozen=True)
class _Shown:
    """How results are printed: for people first, as one JSON document last where asked."""

    top: int
    everything: bool
    json: bool
    baseline: AuditReport | None = None
    gate: bool = False

    def report(self, report: AuditReport) -> None:
        from harness.record.audit_report import to_json
        from harness.tables.audit_text import print_report

        if self.baseline is not None:
            self._new(report, self.baseline)
            return
        print_report(report, _console(), top=self.top, everything=self.everything)
        if self.json:
            print(to_json(report))

    def _new(self, report: AuditReport, baseline: AuditReport) -> None:
        """Only what is new; exits 1 where that is asked for."""
        import msgspec

        from harness.audit.known_sites import new_sites
        from harness.record.audit_report import to_json
        from harness.tables.audit_text import print_report

        sites = new_sites(report, baseline)
        places = {(site.file, site.line) for site in sites}
        news = msgspec.structs.replace(
            report,
            sites=sites,
            syncs_per_step=sum(site.count_per_step * site.syncs_per_call for site in sites),
            findings=tuple(f for f in report.findings if (f.file, f.line) in places),
            redundant_groups=(),
            repeated_across_steps=(),
            notes=(f"New sites since the baseline: {len(sites)}.",),
        )
        print_report(news, _console(), top=self.top, everything=True)
        if self.json:
            print(to_json(news))
        if sites and self.gate:
            raise typer.Exit(1)

    def table(self, table: Table, document: object) -> None:
        from gapless.json_documents import indented
        from gapless.terminal_tables import print_table

        print_table(table)
        if self.json:
            print(indented(document))


def _baseline(path: str | None) -> AuditReport | None:
    from harness.audit.known_sites import read_baseline

    return None if path is None else read_baseline(path)


def _fixed_scenario(
    scenario: Scenario, audit: Callable[[str | None], AuditReport], arm: str | None, seed: int
) -> FixResult:
    from gapless.fixing import audit_arms
    from gapless.scenario_audit import best_arm

    return audit_arms(audit, arm or best_arm(scenario), seed=seed)


def _fixed(result: FixResult, shown: _Shown) -> None:
    from gapless.fixing import fix_table

    shown.table(fix_table(result), result)


def _console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if terminal else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False)


def _mode(values: bool | None) -> Mode:
    if values is None:
        return "auto"
    return "values" if values else "shapes"


def _refuse(options: Mapping[str, object], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} {why}; leave it out.")


def _is_trace(word: str) -> bool:
    path = Path(word)
    return path.is_dir() or path.name.endswith(TRACE_ENDINGS)


def _scenario(
    scenario: Scenario,
    choices: dict[str, Any],
    arm: str | None,
    scale: str | None,
    steps: int | None,
    skip: int | None,
    emulation: dict[str, Any],
) -> AuditReport:
    from gapless.scenario_audit import audit_scenario
    from scenarios.build_options import BuildOptions

    return audit_scenario(
        scenario,
        BuildOptions.from_mapping(choices),
        arm=arm,
        scale=scale,
        steps=1 if steps is None else steps,
        warmup=1 if skip is None else skip,
        **{**emulation, "gpu": emulation["gpu"] or DEFAULT_GPU},
    )


def _program(
    words: list[str],
    steps: int | None,
    skip: int | None,
    emulation: dict[str, Any],
    tensorboard: str | None,
) -> AuditReport:
    from gapless.program_audit import audit_on_gpu, audit_program, should_be_live

    if should_be_live(emulation["gpu"]):
        return audit_on_gpu(words, steps=steps, skip=skip, tensorboard=tensorboard)
    _refuse({"--tensorboard": tensorboard}, "takes a trace, which an emulated audit has not")
    emulation = {**emulation, "gpu": emulation["gpu"] or DEFAULT_GPU}
    return audit_program(words, steps=steps, skip=skip, **emulation)


def _traces(
    words: list[str],
    shown: _Shown,
    *,
    annotate: str | None,
    compat: str | None,
    tensorboard: str | None,
) -> None:
    from gapless.trace_tables import comparison_table, compat_table
    from harness.audit import trace

    if len(words) > 2:
        raise UsageError(f"Two traces can be compared, not {len(words)}; name two.")
    if compat not in (None, "hta"):
        raise UsageError(f"--compat {compat} is unknown; there is hta.")
    alone = {"--annotate": annotate, "--compat": compat, "--tensorboard": tensorboard}
    if len(words) == 2:
        _refuse(alone, "takes one trace, not two to compare")
        audits = [trace.audit_trace(word) for word in words]
        comparison = trace.compare_audits(*audits, everything=shown.everything)
        shown.table(comparison_table(comparison), comparison)
        return
    (path,) = words
    if compat is not None:
        numbers = trace.compat_hta(path)
        shown.table(compat_table(numbers), numbers)
        return
    report = trace.audit_trace(path)
    done = []
    if annotate is not None:
        trace.annotate(path, annotate)
        done.append(f"Annotated trace: {annotate} (open it in ui.perfetto.dev)")
    if tensorboard is not None:
        from harness.audit.tensorboard import save_for_tensorboard

        saved = save_for_tensorboard(path, tensorboard)
        done.append(f"For TensorBoard: {saved} (tensorboard --logdir {tensorboard})")
    for sentence in done:
        print(sentence, file=sys.stderr)
    shown.report(report)
