"""The `gapless` command. A verb is one file beside this one and one line in `VERBS`."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from gapless import __version__
from gapless.cli import (
    audit,
    bench,
    calibrate,
    dashboard,
    doctor,
    export,
    listing,
    model,
    report,
    reproduce,
    selftest,
)
from gapless.cli.option_rules import VerbCommand
from gapless.cli.output import EXIT_READER_GONE, until_reader_leaves
from gapless.saying import say, say_aside
from gapless.stops import Stops, stopped
from harness.errors import GaplessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_UNEXPECTED = 70
"""`EX_SOFTWARE`: a fault of gapless itself, told apart from the codes of the contract (0 to 3)."""

EXIT_CODES = (
    "Exit codes: 0 fine, 1 a budget or comparison failed, 2 bad usage or not comparable, 3 the "
    f"workload failed, {reproduce.EXIT_TOO_FEW_BLOCKS} fewer blocks than --min-blocks asks, "
    f"{EXIT_UNEXPECTED} a fault of gapless, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, "
    f"{EXIT_READER_GONE} the program that reads the output ended first."
)

_TOO_MUCH = (
    "What was given needs more memory than this process may use; give less of it, or more memory.",
    "What was given is nested deeper than can be read; give it with fewer levels.",
)
"""For memory and for recursion: what runs into either is an input, not a fault of gapless."""

_DEPENDENCIES = ("torch", "transformers", "peft", "streamlit", "plotly", "psutil")
"""What an installation for one purpose, such as a server for the dashboard, may leave out."""

app = typer.Typer(
    name="gapless",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERBS: dict[str, Callable[..., None]] = {
    "reproduce": reproduce.command,
    "bench": bench.command,
    "model": model.command,
    "calibrate": calibrate.command,
    "audit": audit.command,
    "list": listing.command,
    "doctor": doctor.command,
    "selftest": selftest.command,
    "dashboard": dashboard.command,
    "export": export.command,
    "report": report.command,
}
for verb, command in VERBS.items():
    app.command(verb, cls=VerbCommand)(command)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"gapless {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")
    ] = False,
) -> None:
    """Find, fix and prove coordination overhead in PyTorch training."""


def main(arguments: Sequence[str] | None = None, *, stops: Stops | None = None) -> int:
    """Run one command and return its exit code; an error is one sentence on stderr."""
    words, debug = _take_debug(list(sys.argv[1:] if arguments is None else arguments))
    return until_reader_leaves(lambda: _run(words, debug, stops or Stops()))


def _run(words: list[str], debug: bool, stops: Stops) -> int:
    try:
        app(words, prog_name="gapless")
    except GaplessError as error:
        return _fail(str(error), error.exit_code, debug)
    except BaseException as error:
        if stops.number is not None or _is_interrupt(error):
            # Whatever came of it on its way here, such as an import that failed.
            if debug:
                traceback.print_exc()
            return stopped(stops.number or signal.SIGINT)
        if not isinstance(error, Exception):
            raise
        if isinstance(error, MemoryError | RecursionError):
            return _fail(_TOO_MUCH[type(error) is RecursionError], GaplessError.exit_code, debug)
        if isinstance(error, ModuleNotFoundError) and error.name in _DEPENDENCIES:
            missing = (
                f"this command needs {error.name}, which is not installed: run it where "
                "`pip install gapless` brought everything; the dashboard's own image has not."
            )
            return _fail(missing, GaplessError.exit_code, debug)
        what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(". ")
        sentence = f"unexpected {what}; run again with --debug for the traceback."
        return _fail(sentence, EXIT_UNEXPECTED, debug)
    return 0


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error; typer turns it into an exit."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(sentence: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    say_aside(f"gapless: {sentence}")
    return code


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    """Take `--debug` out wherever it stands, but not from behind `--`: that is a target's own."""
    end = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:end] if word != "--debug"]
    return own + words[end:], len(own) != end
