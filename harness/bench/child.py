"""The child process: takes a plan from its parent, measures, and reports what it sees.

`python -m harness.bench.child CONTROL_FD EVENTS_FD PARENT_PID`. The first line on the control pipe
is the plan; a line `stop` asks to end after the current step; where the pipe ends, the parent has
ended, and the child ends too.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import signal
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.bench.child_events import Event, Failed, Stage, encode
from harness.bench.interrupts import STOP_SIGNALS
from harness.bench.plan import BenchPlan
from harness.errors import GaplessError, UsageError
from harness.origin import in_library, own_package

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_LINE = b"stop\n"

_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cannot allocate memory",
    "alloc_failed",
)


def main(arguments: Sequence[str]) -> int:
    """Measure one plan; the exit status is 0 where the last event says how it ended."""
    control_fd, events_fd, parent_pid = (int(argument) for argument in arguments)
    _die_with(parent_pid)
    faulthandler.enable()
    first_line, rest = _read_line(control_fd)
    plan = msgspec.json.decode(first_line, type=BenchPlan)
    stop = threading.Event()
    _stop_on_signals(stop)
    threading.Thread(target=_watch, args=(control_fd, rest, stop), daemon=True).start()

    def emit(event: Event) -> None:
        _write_all(events_fd, encode(event) + b"\n")

    emit(Stage(name="start"))
    try:
        _limit_memory(plan.memory_limit_bytes)
        # Heavy, so only now: what fails to import becomes an event, too.
        from harness.bench.session import measure

        if plan.num_threads is not None:
            import torch

            torch.set_num_threads(plan.num_threads)
        measure(plan, emit, stop.is_set)
    except BaseException as error:
        # Not only an `Exception`: a model that calls `sys.exit` has failed as well.
        traceback.print_exc()
        emit(describe_failure(error))
    return 0


def describe_failure(error: BaseException) -> Failed:
    """What went wrong, in one sentence, and whether user, memory or code is at fault."""
    if isinstance(error, UsageError):
        return Failed(kind="usage", message=str(error))
    if is_out_of_memory(error):
        return Failed(kind="memory", message=_first_line(error) or type(error).__name__)
    if isinstance(error, GaplessError):
        return Failed(kind="error", message=str(error))
    text = _first_line(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Failed(kind="error", message=f"{what} ({_place(error)})")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the host or on a device."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # torch raises RuntimeError and its own subclass; only the text shows that the CPU ran out.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _OUT_OF_MEMORY)


def _die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the parent dies, where the kernel can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:
            sys.exit("the parent died before the child started")


def _stop_on_signals(stop: threading.Event) -> None:
    """A scheduler that cancels tells every process: end after the present step, as the parent asks.

    What the workload forks, such as a loader's workers, ends on a signal as usual.
    """

    def usual() -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: stop.set())
    os.register_at_fork(after_in_child=usual)


def _watch(control_fd: int, rest: bytes, stop: threading.Event) -> None:
    """Wait for `stop`; where the parent has ended instead, end the whole process group."""
    while True:
        while STOP_LINE in rest:
            rest = rest.partition(STOP_LINE)[2]
            stop.set()
        # Not a buffered reader: its lock would be held by this thread when the process ends.
        received = os.read(control_fd, 4096)
        if not received:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        rest += received


def _read_line(fd: int) -> tuple[bytes, bytes]:
    """The first line, and what was read past it."""
    received = b""
    while b"\n" not in received:
        chunk = os.read(fd, 65536)
        if not chunk:
            sys.exit("the parent ended before it sent a plan")
        received += chunk
    line, _, rest = received.partition(b"\n")
    return line, rest


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def _limit_memory(limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        import resource  # Windows has none

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else ""


def _place(error: BaseException) -> str:
    """The innermost frame that is neither Python's nor an installed package's."""
    frames = traceback.extract_tb(error.__traceback__)
    python = f"{sysconfig.get_path('stdlib')}{os.sep}"
    own = [
        frame
        for frame in frames
        if own_package(frame.filename)
        or not (frame.filename.startswith(("<", python)) or in_library(frame.filename))
    ]
    frame = (own or list(frames))[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's own clean-up: a GPU library that fails there must not turn a run
    # that is done into one that crashed.
    os._exit(status)
