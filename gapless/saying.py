"""The only way to the terminal for a plain line: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.boundary.foreign_text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.store import Problem

MOST_PROBLEMS = 10


def say(text: str = "") -> None:
    """A line of results, with what would steer a terminal shown as text."""
    print(visible(text))


def say_aside(text: str) -> None:
    """A line beside the results: progress, a remark, an error."""
    print(visible(text), file=sys.stderr, flush=True)


def say_problems(problems: Sequence[Problem]) -> None:
    """Name what a store holds besides readable runs; the others are shown all the same."""
    for problem in problems[:MOST_PROBLEMS]:
        say_aside(f"Left out, {problem.name}: {problem.reason}")
    if len(problems) > MOST_PROBLEMS:
        say_aside(f"Left out besides: {len(problems) - MOST_PROBLEMS} more.")
