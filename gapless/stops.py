"""Signals to stop as one line and an exit code, wherever they come. Imports nothing heavy."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

LATER_S = 0.02
LONGEST_IMPORT_S = 5.0
"""A signal during an import is held back no longer than this."""
_IMPORTING = "<frozen importlib._bootstrap>"


class Stopped(KeyboardInterrupt):
    """A stop signal, where nothing counts it: raised as Ctrl-C is, and cleaned up after alike."""


class Stops:
    """Turns stop signals into `Stopped`, at moments at which it is not lost.

    An exception in the middle of an import is turned into another one, or swallowed, by the
    libraries' own code; so there the signal comes again a little later.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """Of the first signal that came."""
        self._first_s = 0.0

    def install(self) -> None:
        """Take over the signals, except those that the program was started to ignore."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self._first_s = number, time.monotonic()
        if _is_importing(frame) and time.monotonic() - self._first_s < LONGEST_IMPORT_S:
            _thread.start_new_thread(_again, (number,))
            return
        raise Stopped


def stopped(number: int) -> int:
    """Say by what the command was stopped; returns its exit code, the one a shell knows."""
    words = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    try:
        sys.stderr.write(f"gapless: stopped by {words}.\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # The terminal is gone, or there never was one; nor may the interpreter flush into it.
        _discard_output()
    return 128 + number


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _again(number: int) -> None:
    time.sleep(LATER_S)
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main(signal.Signals(number))
    else:
        signal.pthread_kill(main, number)
