"""Runs a plan in a child process and returns a record, however the child ends."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.bench.child_events import Progress
from harness.bench.interrupts import Interrupts, signal_words
from harness.bench.process import ChildProcess
from harness.bench.run_assembly import Ending, Seen, assemble_record
from harness.errors import UsageError
from harness.record.attachments import Attachments

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.bench.plan import BenchPlan
    from harness.record.records import RunRecord, Sample

logger = logging.getLogger(__name__)

_POLL_S = 0.1


def require_timing() -> None:
    """Raise `UsageError` where no run can be timed: the child is controlled by POSIX signals."""
    if sys.platform == "win32":
        raise UsageError(
            "Timed and modelled runs need Linux or macOS, and this is Windows: run this command in "
            "WSL 2; `gapless audit`, `list`, `export`, `report` and `dashboard` work here."
        )


def run_plan(
    plan: BenchPlan,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    interrupts: Interrupts | None = None,
    attachments: Attachments | None = None,
) -> tuple[RunRecord, tuple[Sample, ...]]:
    """Measure, and return the record with all raw samples, warm-ups too, in the order taken.

    `on_progress` is called as the child tells something; `should_stop` is asked ten times a second.
    One Ctrl-C, SIGTERM or SIGHUP, or `should_stop`, ends the run after the present step; a second
    one kills the child. Pass `interrupts` to learn of them afterwards, as a sweep must.
    `attachments` is filled with the sites behind each arm's sync counts, and with its timeline,
    where they are known.

    Out of memory, a crash, a kill and an exception become a record that says so and keeps what was
    measured. Raises `UsageError` where the plan asks for something that does not exist here, and
    on Windows.
    """
    require_timing()
    began, start_s = datetime.now(UTC), time.monotonic()
    seen = Seen(attachments=attachments or Attachments())
    if interrupts is None:
        with Interrupts() as interrupts:
            ending = _follow(plan, seen, interrupts, on_progress, should_stop)
    else:
        ending = _follow(plan, seen, interrupts, on_progress, should_stop)
    logger.debug("the child ended with %d and printed:\n%s", ending.status, ending.output)
    duration_s = time.monotonic() - start_s
    record = assemble_record(plan, seen, ending, began=began, duration_s=duration_s)
    return record, tuple(seen.samples)


def _follow(
    plan: BenchPlan,
    seen: Seen,
    interrupts: Interrupts,
    on_progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> Ending:
    """Read what the child reports until it has ended."""
    start_s, interrupts_before = time.monotonic(), interrupts.count
    asked_to_stop, killed_because = False, None
    with ChildProcess(plan) as child:
        while not child.ended:
            events = child.receive(_POLL_S)
            for event in events:
                seen.add(event)
            elapsed_s = time.monotonic() - start_s
            if events and on_progress is not None:
                on_progress(_progress(seen, elapsed_s))
            num_interrupts = interrupts.count - interrupts_before
            if killed_because is not None:
                continue
            if num_interrupts > 1:
                killed_because = f"by a second {signal_words(interrupts.last)}"
            elif elapsed_s > plan.kill_after_s:
                killed_because = f"for not ending within {plan.kill_after_s:.0f} s"
            elif not asked_to_stop and (num_interrupts or (should_stop and should_stop())):
                asked_to_stop = True
                child.ask_to_stop()
            if killed_because is not None:
                child.kill()
        return Ending(child.wait(), killed_because, child.output_tail())


def _progress(seen: Seen, elapsed_s: float) -> Progress:
    return Progress(
        stage=seen.stage.name,
        arm=seen.stage.arm,
        block=seen.stage.block,
        num_samples=len(seen.samples),
        elapsed_s=elapsed_s,
        remaining_s=seen.stage.remaining_s,
    )
