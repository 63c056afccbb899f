"""Words of the command line to values, with errors that say how to write them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gapless.cli.option_rules import refuse
from harness.errors import UsageError

if TYPE_CHECKING:
    import typer


def parse_precision(text: str) -> float:
    """`1%`, `0.5%` or `0.01` as a share."""
    number, scale = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    try:
        share = float(number) / scale
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UsageError(f"--precision {text} is no share between 0 and 100 %; write it as 1%.")
    return share


def check_seconds(seconds: float) -> float:
    """Seconds above 0, and finite."""
    if not 0 < seconds < math.inf:
        raise UsageError(f"--seconds {seconds:g} leaves no time to measure; give more than 0.")
    return seconds


def check_keeping(
    ctx: typer.Context, store: str | None, no_store: bool, *, device: str | None = None
) -> None:
    """A place to keep the record, or none, but not both; and timelines only where there are some.

    `device` is the one that a run takes, where it may be a CPU.
    """
    if store is not None and no_store:
        raise UsageError("--store and --no-store exclude each other; give one.")
    if no_store:
        refuse(ctx, "timelines", "is about what is kept, and --no-store keeps nothing")
    if device == "cpu":
        refuse(ctx, "timelines", "is for a GPU, real or modelled, and this run is on a CPU")


def kept_line(store: str, what: str) -> str:
    """Where the records of a run are, in one line; a store in memory ends with the process."""
    if store.startswith("memory://"):
        return f"Nothing is kept: {store} ends with this process; give --store a folder or a URL."
    return f"{what} {store.rstrip('/')}/"
