"""Waits that are meant: marked in the code with a reason, and listed apart."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_reason: ContextVar[str | None] = ContextVar("intended_wait", default=None)


@contextmanager
def allow_sync(reason: str) -> Iterator[None]:
    """Waits inside this block are intended; an audit lists them apart, with the reason.

    Outside of an audit it does nothing. Blocks nest; the innermost reason holds. Works as a
    decorator too. Raises `UsageError` for an empty reason.
    """
    if not reason.strip():
        raise UsageError("allow_sync needs a reason, such as allow_sync('log every 100 steps').")
    token = _reason.set(reason)
    try:
        yield
    finally:
        _reason.reset(token)


def intended_reason() -> str | None:
    """The reason that holds here, or `None` where waits are not marked."""
    return _reason.get()
