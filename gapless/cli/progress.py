"""Where a run stands, on stderr: a bar in a terminal, one plain line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gapless.saying import say_aside

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

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24))
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=None)

    def update(progress: Progress) -> None:
        remaining_s = None if progress.remaining_s is None else progress.remaining_s + later_s
        total = None if remaining_s is None else progress.elapsed_s + remaining_s
        with _whether_shown_or_not():
            bar.update(
                task,
                total=total,
                completed=progress.elapsed_s,
                description=_describe(label, progress, remaining_s),
            )

    with _whether_shown_or_not():
        bar.start()
    try:
        yield update
    finally:
        with _whether_shown_or_not():
            bar.stop()


@contextmanager
def _whether_shown_or_not() -> Iterator[None]:
    """A terminal that was closed ends no measurement; only a reader that left does, as for all
    output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        return


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
        with _whether_shown_or_not():
            say_aside(f"{label}: run {self._done + 1} of {self._num_runs}, {told}")
        self._done += 1


def _plain(label: str) -> Callable[[Progress], None]:
    last = ""

    def update(progress: Progress) -> None:
        nonlocal last
        if progress.stage != last:
            last = progress.stage
            with _whether_shown_or_not():
                say_aside(f"{label}: {progress.stage}")

    return update


def _describe(label: str, progress: Progress, remaining_s: float | None) -> str:
    where = progress.stage if progress.block is None else f"{progress.stage} {progress.block}"
    left = "" if remaining_s is None else f", {_clock(remaining_s)} left"
    return f"{label}: {where}, {_clock(progress.elapsed_s)}{left}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
