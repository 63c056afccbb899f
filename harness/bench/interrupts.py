"""Ctrl-C as a request that is counted, not as an exception in the middle of something."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interrupts:
    """While entered on the main thread, Ctrl-C raises `count` and nothing else.

    Enter one around several runs to learn, after each, whether the user wants the rest. On another
    thread it does nothing: Python delivers Ctrl-C to the main one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._on_main_thread = False

    def __enter__(self) -> Self:
        self._on_main_thread = threading.current_thread() is threading.main_thread()
        if self._on_main_thread:
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._on_main_thread:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal calls it
        self.count += 1
