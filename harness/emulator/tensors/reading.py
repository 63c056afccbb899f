"""Why Python reads a device value: the outermost construct that led to the read.

`aten::_local_scalar_dense` looks the same for `if t:`, `x[:t]` and `print(t)`; the kind of the
wait is told by the construct, which only the Python side of the tensor sees.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from harness.record.sync_kinds import SyncKind

_reading: ContextVar[SyncKind | None] = ContextVar("emulator_reading", default=None)


def current_reading() -> SyncKind | None:
    """Kind of the construct that is being evaluated, or `None` outside of one."""
    return _reading.get()


class Reading:
    """Context in which reads have this kind, unless an outer construct already set one."""

    __slots__ = ("_kind", "_outermost")

    def __init__(self, kind: SyncKind) -> None:
        self._kind = kind
        self._outermost = False

    def __enter__(self) -> None:
        if _reading.get() is None:
            self._outermost = True
            _reading.set(self._kind)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._outermost:
            _reading.set(None)
