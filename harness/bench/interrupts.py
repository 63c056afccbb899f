"""A signal to stop as a request that is counted, not as an exception in the middle of something."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, a scheduler or CI that cancels, and a terminal that is closed."""


class Interrupts:
    """While entered on the main thread, a stop signal raises `count` and nothing else.

    Enter one around several runs to learn, after each, whether the user wants the rest. On another
    thread it does nothing: Python delivers signals to the main one. A signal that the program was
    started to ignore, as by `nohup`, stays ignored.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: signal.Signals | None = None
        """The signal that came first."""
        self.last = signal.SIGINT
        """The signal that came last, once `count` is not 0."""
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def exit_code(self) -> int:
        """What a shell reports for a program that the first signal ended: 130 for Ctrl-C."""
        return 128 + (self.first or signal.SIGINT)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                ignored = signal.getsignal(number) is signal.SIG_IGN
                if number == signal.SIGINT or not ignored:
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal calls it
        self.count += 1
        self.last = signal.Signals(number)
        self.first = self.first or self.last


def signal_words(number: signal.Signals) -> str:
    """How people know a signal: `Ctrl-C`, `SIGTERM`."""
    return "Ctrl-C" if number == signal.SIGINT else number.name
