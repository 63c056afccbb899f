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
_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def interrupts_at_safe_places() -> Iterator[None]:
    """Interrupts inside come a moment later where they could do harm. Main thread only: no other
    one is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def handler(number: int, frame: FrameType | None) -> None:
        outer = previous[number]
        if frame is not None and frame.f_globals.get("__name__") in _CANNOT_TAKE_IT:
            _thread.start_new_thread(_interrupt_later, (number,))
        elif callable(outer):
            outer(number, frame)

    # One that is ignored, or ends the process at once, raises nothing anywhere.
    taken = [number for number, outer in previous.items() if callable(outer)]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            # A program that set a handler of its own meanwhile keeps it.
            if signal.getsignal(number) is handler:
                signal.signal(number, previous[number])


def _interrupt_later(number: int) -> None:
    time.sleep(_LATER_S)
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main(signal.Signals(number))
    else:
        # A signal to the thread itself also ends a call it waits in, such as one for a batch.
        signal.pthread_kill(main, number)
