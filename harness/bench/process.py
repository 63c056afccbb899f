"""Starts the child in a session of its own, exchanges messages with it, and ends it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from harness.bench.child import STOP_LINE
from harness.bench.child_events import Event, decode

if TYPE_CHECKING:
    from types import TracebackType

    from harness.bench.plan import BenchPlan

_TAIL_BYTES = 16_384
_DROPPED_VARIABLES = (
    # They slow Python down or make it print.
    "PYTHONDEVMODE",
    "PYTHONINSPECT",
    "PYTHONMALLOC",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONSTARTUP",
    "PYTHONTRACEMALLOC",
    "PYTHONWARNINGS",
    "COVERAGE_PROCESS_START",
    # They make every kernel launch wait, or every allocation go to the driver.
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)


class ChildProcess:
    """One running child. As a context manager it is killed on the way out, if it still runs.

    Its output goes to a temporary file, so that it cannot block on a full pipe.
    """

    def __init__(self, plan: BenchPlan) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        control_read, self._control = os.pipe()
        self._events, events_write = os.pipe()
        arguments = [str(control_read), str(events_write), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.bench.child", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(control_read, events_write),
                env=child_environment(plan, dict(os.environ), sys.path),
                # Ctrl-C reaches the parent only, which then asks; and a kill of the group takes
                # with it whatever the workload started.
                start_new_session=True,
            )
        finally:
            os.close(control_read)
            os.close(events_write)
        os.set_blocking(self._events, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._events, selectors.EVENT_READ)
        self._unread = bytearray()
        """The start of a line whose end has not arrived; lost if the child is killed."""
        self._open = True
        self._send(msgspec.json.encode(plan) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        self._process.wait()
        self._selector.close()
        os.close(self._events)
        os.close(self._control)
        self._output.close()

    @property
    def pid(self) -> int:
        """Process id of the child, which leads its process group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the child has ended and everything that it reported has been read."""
        return not self._open

    def receive(self, timeout_s: float) -> list[Event]:
        """Events since the last call; waits up to `timeout_s` seconds for the first."""
        # Asked before reading, so that everything written before the end is read.
        gone = self._process.poll() is not None
        self._selector.select(0 if gone else timeout_s)
        lines: list[bytearray] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                chunk = os.read(self._events, 65536)
                if not chunk:
                    self._process.wait()
                    gone = True
                    break
                # A timeline comes in thousands of chunks: each is looked at once.
                end_of_line, *new_lines = chunk.split(b"\n")
                self._unread += end_of_line
                for line in new_lines:
                    lines.append(self._unread)
                    self._unread = bytearray(line)
        self._open = not gone
        return [decode(line) for line in lines]

    def ask_to_stop(self) -> None:
        """Ask the child to end after the current step."""
        self._send(STOP_LINE)

    def kill(self) -> None:
        """End the child and everything that it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the child to end and return its status: negative is the signal that ended it."""
        return self._process.wait()

    def output_tail(self) -> str:
        """The end of what the child printed."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _TAIL_BYTES))
        return self._output.read().decode(errors="replace")

    def _send(self, line: bytes) -> None:
        # The child has ended already; its exit status says how.
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._control, line) :]


def child_environment(
    plan: BenchPlan, environment: dict[str, str], import_path: list[str]
) -> dict[str, str]:
    """The parent's environment without what disturbs timing, and with its import path."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _DROPPED_VARIABLES and not name.startswith("COV_CORE_")
    }
    kept["PYTHONPATH"] = os.pathsep.join(folder or str(Path.cwd()) for folder in import_path)
    kept["PYTHONHASHSEED"] = "0"
    kept["TOKENIZERS_PARALLELISM"] = "false"
    if plan.num_threads is not None:
        kept["OMP_NUM_THREADS"] = kept["MKL_NUM_THREADS"] = str(plan.num_threads)
    return kept
