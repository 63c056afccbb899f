"""Words of the command line to values, with errors that say how to write them."""

from __future__ import annotations

import math

from harness.errors import UsageError


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


def check_threads(threads: int | None) -> int | None:
    """Threads of one op, at least 1; `None` leaves torch its own number."""
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads} computes nothing; give 1 or more.")
    return threads


def check_seconds(seconds: float) -> float:
    """Seconds above 0, and finite."""
    if not 0 < seconds < math.inf:
        raise UsageError(f"--seconds {seconds:g} leaves no time to measure; give more than 0.")
    return seconds


def check_keeping(store: str | None, no_store: bool) -> None:
    """A place to keep the record, or none, but not both."""
    if store is not None and no_store:
        raise UsageError("--store and --no-store exclude each other; give one.")
