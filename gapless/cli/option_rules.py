"""What every verb refuses alike: an option given twice, a number out of its range."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperOption

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import typer

LARGEST_SEED = 2**32 - 1
"""What every generator of random numbers takes."""

RANGES: Mapping[str, tuple[int, int | None]] = {
    "documents": (1, None),
    "layers": (1, None),
    "min_blocks": (1, None),
    "port": (1, 65_535),
    "seed": (0, LARGEST_SEED),
    "skip": (0, None),
    "steps": (1, None),
    "threads": (1, None),
    "tokens": (8, None),
    "top": (1, None),
}
"""Parameter of any verb -> least and largest value."""


class VerbCommand(TyperCommand):
    """A verb whose options are used or refused, and listed by `rich_help_panel` in its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual.

        Raises `UsageError` for an option given twice, a number out of range, and a word that is not
        among the choices: those that the metavar of an option lists, as in `narrow|full`.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        left = super().parse_args(ctx, args)
        _refuse_twice(order)
        for option in self.params:
            value = ctx.params.get(option.name)
            if value is None:
                continue
            if option.name in RANGES:
                check_range(option.opts[0], value, *RANGES[option.name])
            if isinstance(option, TyperOption) and (option.metavar or "").islower():
                words = value if option.multiple else (value,)
                _check_choice(option.opts[0], words, str(option.metavar).split("|"))
        return left

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the options of each panel under its title."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is None:
                continue
            usual = "Options" if parameter.param_type_name == "option" else "Arguments"
            title = getattr(parameter, "rich_help_panel", None) or usual
            panels.setdefault(title, []).append(line)
        # What has no panel of its own, such as --help, is for all and comes last.
        for title in sorted(panels, key=lambda title: (title != "Arguments", title == "Options")):
            with formatter.section(title):
                formatter.write_dl(panels[title])


def _refuse_twice(order: Iterable[Any]) -> None:
    options = [one for one in order if isinstance(one, TyperOption) and not one.multiple]
    for option, count in Counter(options).items():
        if count > 1:
            names = [*option.opts[:1], *option.secondary_opts[:1]]
            if len(names) > 1:
                raise UsageError(
                    f"{' and '.join(names)} exclude each other; give one of them, once."
                )
            raise UsageError(
                f"{names[0]} is given {count} times and takes one value; give it once."
            )


def _check_choice(flag: str, words: Iterable[str], choices: list[str]) -> None:
    for word in words:
        if word not in choices:
            raise UsageError(f"{flag} {word} is unknown; choose {either(choices)}.")


def either(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def check_range(flag: str, value: int, least: int, largest: int | None = None) -> None:
    """Raise `UsageError` where `value` is outside, with the range."""
    if value < least or (largest is not None and value > largest):
        mend = f"{least} or more" if largest is None else f"a number from {least} to {largest}"
        raise UsageError(f"{flag} {value} is out of range; give {mend}.")


def given(ctx: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options and arguments that the command line names, by parameter, with their values."""
    return {
        name: values[name]
        for name in ctx.params
        if name in values and is_given(ctx, name) and values[name] is not None
    }


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether the command line names this parameter, be it with its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def flag_of(ctx: typer.Context, name: str, value: object = True) -> str:
    """The option as it is typed; of a pair of flags the one that gives `value`."""
    parameter = next(one for one in ctx.command.params if one.name == name)
    names = [*parameter.secondary_opts] if value is False else []
    return str([*names, *parameter.opts][0])


def refuse(ctx: typer.Context, name: str, why: str) -> None:
    """Raise `UsageError` where the command line names this option, which has no effect here.

    `why` says so after the option's name, as in `belongs to --fix`.
    """
    if is_given(ctx, name):
        raise UsageError(f"{flag_of(ctx, name, ctx.params[name])} {why}; leave it out.")
