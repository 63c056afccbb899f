"""Attributes replaced while the device is active, and put back exactly as they were."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ABSENT = object()


class Patches:
    """Remembers what each replaced attribute was; `restore` undoes all, last first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._afterwards: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`, or add it."""
        # `vars` and not `getattr`: an attribute that was inherited is deleted again, not frozen.
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace the function `owner.name` by one that calls `around(original, *args)`."""
        original = getattr(owner, name)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        self.set(owner, name, wrapper)

    def after_restore(self, action: Callable[[], object]) -> None:
        """Do this once everything is back."""
        self._afterwards.append(action)

    def restore(self) -> None:
        """Put everything back; calling it twice is harmless."""
        while self._undo:
            owner, name, value = self._undo.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        while self._afterwards:
            self._afterwards.pop()()
