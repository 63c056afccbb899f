"""The only way to the terminal for a plain line: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys

from harness.boundary.foreign_text import visible


def say(text: str = "") -> None:
    """A line of results, with what would steer a terminal shown as text."""
    print(visible(text))


def say_aside(text: str) -> None:
    """A line beside the results: progress, a remark, an error."""
    print(visible(text), file=sys.stderr, flush=True)
