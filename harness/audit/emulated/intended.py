"""Intended syncs: marked in the code with a reason, and listed apart."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

_reason: ContextVar[str | None] = ContextVar("intended_wait", default=None)


@contextmanager
def allow_sync(reason: str) -> Iterator[None]:
    """Mark the syncs inside this block as intended: an audit lists them apart, with the reason.

        with gapless.allow_sync("log every 100 steps"):
            print(loss.item())

    Outside of an audit it does nothing. In nested blocks the innermost reason holds. It is a
    decorator, too. Raises `UsageError` for an empty reason.
    """
    if not reason.strip():
        raise UsageError("allow_sync needs a reason, such as allow_sync('log every 100 steps').")
    token = _reason.set(reason)
    try:
        yield
    finally:
        _reason.reset(token)


def intended_reason() -> str | None:
    """The reason that holds here, or `None` where syncs are not marked."""
    return _reason.get()


class FirstMoves:
    """The copies that first move a model to the device are intended: they are part of no step.

    `around` stands for `nn.Module._apply`, which `to`, `cuda` and `half` go through. A module that
    is moved again, as when it is offloaded in between, is counted.
    """

    REASON = "the model moves to the device"

    def __init__(self) -> None:
        self._moved: WeakSet[nn.Module] = WeakSet()

    def around(
        self, original: Callable[..., nn.Module], module: nn.Module, *args: Any, **kwargs: Any
    ) -> nn.Module:
        """Call `original(module, ...)`."""
        if module in self._moved or intended_reason() is not None:
            return original(module, *args, **kwargs)
        with allow_sync(self.REASON):
            result = original(module, *args, **kwargs)
        if any(parameter.is_cuda for parameter in module.parameters()):
            self._moved.update(module.modules())
        return result
