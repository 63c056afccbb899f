"""Where a run stands, on stderr: a bar in a terminal, one plain line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.bench.child_events import Progress


@contextmanager
def show_progress(label: str, *, later_s: float = 0.0) -> Iterator[Callable[[Progress], None]]:
    """Yields what to call with each `Progress` of one run; `later_s` is for the runs after it."""
    if not sys.stderr.isatty():
        yield _plain(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def update(progress: Progress) -> None:
            remaining_s = None if progress.remaining_s is None else progress.remaining_s + later_s
            total = None if remaining_s is None else progress.elapsed_s + remaining_s
            bar.update(
                task,
                total=total,
                completed=progress.elapsed_s,
                description=_describe(label, progress, remaining_s),
            )

        yield update


class TimeLeft:
    """Tells on stderr, before each of several runs of one kind, how long those to come take."""

    def __init__(self, num_runs: int, now: Callable[[], float] = time.monotonic) -> None:
        self._num_runs, self._now = num_runs, now
        self._began_s, self._done = now(), 0

    def say(self, label: str) -> None:
        """Announce the next run; from the second on with the time that those before it took."""
        spent_s, left = self._now() - self._began_s, self._num_runs - self._done
        told = "seconds to some minutes"
        if self._done:
            told = f"about {_clock(spent_s / self._done * left)} to go, by the {self._done} before"
        print(f"{label}: run {self._done + 1} of {self._num_runs}, {told}", file=sys.stderr)
        self._done += 1


def _plain(label: str) -> Callable[[Progress], None]:
    last = ""

    def update(progress: Progress) -> None:
        nonlocal last
        if progress.stage != last:
            last = progress.stage
            print(f"{label}: {progress.stage}", file=sys.stderr, flush=True)

    return update


def _describe(label: str, progress: Progress, remaining_s: float | None) -> str:
    where = progress.stage if progress.block is None else f"{progress.stage} {progress.block}"
    left = "" if remaining_s is None else f", {_clock(remaining_s)} left"
    return f"{label}: {where}, {_clock(progress.elapsed_s)}{left}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
