"""Which options of `gapless audit` have no effect beside which others: each is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.cli.audit_kinds import (
    DEFAULT_GPU,
    KINDS,
    CallableOptions,
    PairOptions,
    ReportOptions,
    StepOptions,
    TraceOptions,
    kinds_of,
)
from gapless.cli.option_rules import flag_of, is_given, refuse
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import typer

    from gapless.cli.audit_kinds import Options

_EMULATED = ("values", "routing", "on", "without", "timeline", "races")
_OF_A_REPORT = ("top", "everything", "baseline", "fail_on")


def refuse_other_kinds(ctx: typer.Context, kind: str, named: Iterable[str], target: str) -> None:
    """Raise `UsageError` for an option among `named` that is not for this kind of target."""
    fields = KINDS[kind].__struct_fields__
    for name in named:
        if name not in fields:
            flag = flag_of(ctx, name, ctx.params[name])
            raise UsageError(
                f"{flag} is for {kinds_of(name)}, and {target} is {kind}; leave {flag} out."
            )


def refuse_without_effect(ctx: typer.Context, options: Options) -> None:
    """Raise `UsageError` for an option that has no effect beside the others that are given."""
    if options.json and not isinstance(options, PairOptions):
        for name in ("top", "everything"):
            refuse(ctx, name, "is about the table, and --json prints all of the report")
    if options.everything:
        refuse(ctx, "top", "has no effect beside --all")
    if isinstance(options, ReportOptions) and options.fail_on and options.baseline is None:
        raise UsageError("--fail-on new needs --baseline AUDIT.json to compare with.")
    if isinstance(options, TraceOptions) and options.compat:
        for name in (*_OF_A_REPORT, "annotate", "tensorboard"):
            refuse(ctx, name, "has no effect beside --compat, which prints another tool's numbers")
    if isinstance(options, StepOptions):
        _refuse_of_steps(ctx, options)


def _refuse_of_steps(ctx: typer.Context, options: StepOptions) -> None:
    if options.fix:
        for name in (*_OF_A_REPORT, "on", "without", "timeline", "races", "scale", "tensorboard"):
            refuse(ctx, name, "has no effect beside --fix, which shows the step before and after")
    if options.values:
        for name in ("routing", "seed"):
            if not (options.fix and name == "seed"):
                refuse(ctx, name, "is for shapes only, and --values computes real values")


def refuse_of_device(ctx: typer.Context, options: CallableOptions, *, live: bool) -> None:
    """Raise `UsageError` for an option of the emulated GPU on a real one, or the other way."""
    if not live:
        refuse(ctx, "tensorboard", "keeps a trace of a real GPU, and the audit is emulated")
        return
    for name in (*_EMULATED, *(() if options.fix else ("seed",))):
        if is_given(ctx, name):
            flag = flag_of(ctx, name, ctx.params[name])
            raise UsageError(
                f"{flag} is for an emulated GPU, and {options.target[0]} runs on the GPU of this "
                f"machine; leave {flag} out, or add --gpu {DEFAULT_GPU} to emulate one."
            )
