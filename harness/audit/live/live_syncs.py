"""Python stacks of the syncs of a running program, from torch itself.

Two sources: the GPU-trace callbacks that torch calls at each stream, device and event synchronise,
and the warnings of the sync debug mode. Each misses what the other sees (the mode knows nothing of
`torch.cuda.synchronize()`, neither knows of extensions that call CUDA themselves), so both are kept
apart and compared.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
import torch.cuda._gpu_trace as torch_gpu_trace

from harness.audit.frames import Code, CodeClassifier, Point, place_of
from harness.record.trace_details import CallLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType, TracebackType

_MESSAGE = "called a synchronizing CUDA operation"
_REGISTRIES = {
    "stream": "StreamSynchronizationCallbacks",
    "device": "DeviceSynchronizationCallbacks",
    "event": "EventSynchronizationCallbacks",
}


class SyncDebugMode(Protocol):
    """The part of `torch.cuda` that is used; a test can stand in for it."""

    def get_sync_debug_mode(self) -> int: ...

    def set_sync_debug_mode(self, debug_mode: int | str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    point: Point | None
    thread: str
    kind: str
    warned: bool


@dataclass(slots=True)
class SyncRecorder:
    """While active, notes the innermost user frame of each sync, on every thread.

    The debug mode and the warning filters belong to the whole process; both are put back on exit,
    whatever happened inside. Other warnings go where they always went.
    """

    cuda: SyncDebugMode = torch.cuda
    gpu_trace: ModuleType = torch_gpu_trace
    seen: list[_Seen] = field(default_factory=list)
    _book: CodeClassifier = field(default_factory=CodeClassifier)
    _callbacks: dict[str, Callable[..., None]] = field(default_factory=dict)
    _mode: int = 0
    _caught: warnings.catch_warnings[None] | None = None
    _show: Callable[..., None] = warnings.showwarning

    def __enter__(self) -> Self:
        self._mode = self.cuda.get_sync_debug_mode()
        for kind in _REGISTRIES:
            self._callbacks[kind] = self._callback(kind)
        _activate_gpu_trace()
        for kind, registry in self._registries().items():
            registry.callback_list.append(self._callbacks[kind])
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        self._show = warnings.showwarning
        warnings.filterwarnings("always", message=f".*{_MESSAGE}.*")
        warnings.showwarning = self._on_warning
        self.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.cuda.set_sync_debug_mode(self._mode)
        finally:
            for name, registry in self._registries().items():
                registry.callback_list.remove(self._callbacks[name])
            if self._caught is not None:
                self._caught.__exit__(kind, error, trace)

    def _registries(self) -> dict[str, Any]:
        return {kind: getattr(self.gpu_trace, name) for kind, name in _REGISTRIES.items()}

    def _callback(self, kind: str) -> Callable[..., None]:
        def waited(*_arguments: Any) -> None:
            self._note(kind, warned=False)

        return waited

    def _on_warning(self, message: Warning | str, *arguments: Any, **named: Any) -> None:
        if _MESSAGE in str(message):
            self._note("stream", warned=True)
        else:
            self._show(message, *arguments, **named)

    def _note(self, kind: str, *, warned: bool) -> None:
        point = self._innermost(sys._getframe(2))
        self.seen.append(_Seen(point, threading.current_thread().name, kind, warned))

    def _innermost(self, frame: FrameType | None) -> Point | None:
        """The user's innermost frame, else the innermost of a library."""
        library = None
        while frame is not None:
            kind = self._book.kind(frame.f_code)
            point = Point(frame.f_code, frame.f_lasti)
            if kind is Code.USER:
                return point
            if kind is Code.LIBRARY and library is None:
                library = point
            frame = frame.f_back
        return library

    @property
    def num_callbacks(self) -> int:
        """Syncs reported by callbacks."""
        return sum(not seen.warned for seen in self.seen)

    @property
    def num_warnings(self) -> int:
        """Syncs reported by warnings."""
        return sum(seen.warned for seen in self.seen)

    def lines(self) -> tuple[CallLine, ...]:
        """What was seen, by source line and thread, most frequent first."""
        groups: dict[tuple[Point | None, str], list[_Seen]] = {}
        for seen in self.seen:
            groups.setdefault((seen.point, seen.thread), []).append(seen)
        found = []
        for (point, thread), same in groups.items():
            if point is None:
                continue  # C++ threads have no Python frame; the counts hold them.
            place = place_of(point)
            found.append(
                CallLine(
                    file=place.file,
                    line=place.line,
                    function=place.function,
                    code=place.text,
                    thread=thread,
                    num_callbacks=sum(not seen.warned for seen in same),
                    num_warnings=sum(seen.warned for seen in same),
                    kinds=tuple(Counter(seen.kind for seen in same)),
                )
            )
        return tuple(sorted(found, key=lambda line: -max(line.num_callbacks, line.num_warnings)))


def _activate_gpu_trace() -> None:
    """Ask torch to call the callbacks; a build without CUDA has nothing to ask."""
    activate = getattr(torch._C, "_activate_gpu_trace", None)
    if callable(activate):
        activate()
