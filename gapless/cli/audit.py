"""`gapless audit`: what makes the host wait, in a step, a script, a scenario or a trace."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from gapless.cli.audit_kinds import KINDS, kind_of, panel_of
from gapless.cli.option_rules import given
from gapless.cli.options import JsonOption


def _option(name: str, *, flag: str, help: str, metavar: str | None = None) -> Any:  # noqa: A002
    """An option, listed in the help with those that are for the same kinds of target."""
    return typer.Option(flag, help=help, metavar=metavar, rich_help_panel=panel_of(name))


def command(
    ctx: typer.Context,
    target: Annotated[
        list[str] | None,
        typer.Argument(
            help="FILE.py:CALLABLE, package.module:callable, a script (its own arguments after "
            "--), a trace, a folder of traces, or two traces to compare.",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        str | None, _option("scenario", flag="--scenario", help="A name from `gapless list`.")
    ] = None,
    config: Annotated[
        str | None,
        _option(
            "config",
            flag="--config",
            metavar="FILE|DIR|ID",
            help="The config.json of any causal language model.",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        _option(
            "fit",
            flag="--fit",
            metavar="narrow|full",
            help="The real size, or narrowed to fit this machine [default: narrow]",
        ),
    ] = None,
    arm: Annotated[
        str | None,
        _option(
            "arm",
            flag="--arm",
            metavar="OPT=VARIANT[,...]",
            help="An arm [default: the baseline]",
        ),
    ] = None,
    attention: Annotated[
        str | None,
        _option("attention", flag="--attention", help="eager, sdpa, flash_attention_2, ..."),
    ] = None,
    checkpointing: Annotated[
        bool | None,
        _option(
            "checkpointing",
            flag="--checkpointing/--no-checkpointing",
            help="Recompute each layer, or none.",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        _option("tokens", flag="--tokens", help="Tokens in one batch, padding included."),
    ] = None,
    layers: Annotated[
        int | None,
        _option("layers", flag="--layers", help="Layers instead of the model's own."),
    ] = None,
    scale: Annotated[
        str | None,
        _option(
            "scale",
            flag="--scale",
            metavar="layers|experts",
            help="Also audit the scenario at small sizes, and say how each count grows.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        _option(
            "gpu",
            flag="--gpu",
            metavar="NAME",
            help="Emulate this GPU [default: the GPU of this machine, else an emulated H100]",
        ),
    ] = None,
    values: Annotated[
        bool | None,
        _option(
            "values",
            flag="--values/--shapes",
            help="Compute real values, or shapes only [default: values while they are small]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        _option("steps", flag="--steps", help="Steps to count [default: 1; of a script all]"),
    ] = None,
    skip: Annotated[
        int | None,
        _option("skip", flag="--skip", help="Steps before that, not counted [default: 1]"),
    ] = None,
    routing: Annotated[
        str | None,
        _option(
            "routing",
            flag="--routing",
            metavar="uniform|skewed",
            help="How experts are picked with shapes only [default: uniform]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _option(
            "seed",
            flag="--seed",
            help="Of what is drawn with shapes only, and of both audits of --fix [default: 0]",
        ),
    ] = None,
    top: Annotated[
        int | None, _option("top", flag="--top", help="Sites to show [default: 20]")
    ] = None,
    everything: Annotated[
        bool,
        _option("everything", flag="--all", help="Show every site, and figures that did not move."),
    ] = False,
    annotate: Annotated[
        str | None,
        _option(
            "annotate",
            flag="--annotate",
            metavar="OUT.json.gz",
            help="Write the trace with findings.",
        ),
    ] = None,
    compat: Annotated[
        str | None,
        _option(
            "compat",
            flag="--compat",
            metavar="hta",
            help="Print another tool's numbers by its rules.",
        ),
    ] = None,
    tensorboard: Annotated[
        str | None,
        _option(
            "tensorboard",
            flag="--tensorboard",
            metavar="DIR",
            help="Put the trace, of a step the one taken on this machine's GPU, where TensorBoard "
            "looks.",
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        _option(
            "on",
            flag="--on",
            metavar="GPU",
            help="Also say what the costliest sites cost on this GPU; may be repeated.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        _option(
            "without",
            flag="--without",
            metavar="FILE:LINE",
            help="Model the step as if this site did not wait; may be repeated.",
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        _option(
            "timeline",
            flag="--timeline",
            metavar="OUT.json.gz",
            help="Write the modelled timeline of the last step as a trace for Perfetto.",
        ),
    ] = None,
    races: Annotated[
        bool,
        _option(
            "races",
            flag="--races",
            help="Look for memory that two streams use without an order.",
        ),
    ] = False,
    fix: Annotated[
        bool,
        _option(
            "fix",
            flag="--fix",
            help="Turn on the optimizations that the findings name, and audit again.",
        ),
    ] = False,
    baseline: Annotated[
        str | None,
        _option(
            "baseline",
            flag="--baseline",
            metavar="AUDIT.json",
            help="Show only sites that this audit lacks.",
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        _option(
            "fail_on",
            flag="--fail-on",
            metavar="new",
            help="With --baseline: exit 1 where there is a new site.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find what makes the host wait for the GPU.

    By source line, with the cost and the remedy. Needs no GPU: a step or script runs on an emulated
    one. An option that is not for the target at hand is refused.
    """
    named = given(ctx, locals())
    words = target or []
    kind = kind_of(words, scenario, config)

    from gapless.cli.audit_refusals import refuse_other_kinds, refuse_without_effect
    from gapless.cli.audit_runs import carry_out
    from gapless.cli.results import results_of

    refuse_other_kinds(ctx, kind, named, scenario or config or " ".join(words))
    options = msgspec.convert(named, KINDS[kind])
    refuse_without_effect(ctx, options)
    with results_of(options.json) as results:
        carry_out(ctx, options, results)
