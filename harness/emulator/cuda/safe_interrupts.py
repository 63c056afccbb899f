"""Ctrl-C while the device is active, kept away from code that cannot take it.

Python raises it wherever it stands. In a question that the autograd engine asks while it unwinds,
that ends the process; in the finaliser of a device tensor it is printed and lost.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.emulator.cuda import backward_errors
from harness.emulator.cuda import private_backend as backend
from harness.emulator.tensors import device_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_CANNOT_TAKE_IT = frozenset({backend.__name__, backward_errors.__name__, memory.__name__, __name__})
"""Modules that torch's C++ and the garbage collector call into, and the handler itself."""
_LATER_S = 0.001


@contextmanager
def interrupts_at_safe_places() -> Iterator[None]:
    """Interrupts inside come a moment later where they could do harm. Main thread only: no other
    one is interrupted."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals.get("__name__") in _CANNOT_TAKE_IT:
            _thread.start_new_thread(_interrupt_later, ())
        else:
            previous(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        # A program that set a handler of its own meanwhile keeps it.
        if signal.getsignal(signal.SIGINT) is handler:
            signal.signal(signal.SIGINT, previous)


def _interrupt_later() -> None:
    time.sleep(_LATER_S)
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main()
    else:
        # A signal to the thread itself also ends a call it waits in, such as one for a batch.
        signal.pthread_kill(main, signal.SIGINT)
