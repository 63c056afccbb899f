"""What other packages add, by entry points: scenarios, optimizations, GPUs and kinds of findings.

A package names its objects under one of the `GROUPS` in its metadata; whoever has use for them
loads them here and passes them on as values. Nothing registers itself. A plug-in that cannot be
loaded is named on stderr and left out; two of one name are an error, since either could be meant.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Generic, TypeVar

from harness.boundary.foreign_text import visible
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import EntryPoint

T = TypeVar("T")

SCENARIOS = "gapless.scenarios"
OPTIMIZATIONS = "gapless.optimizations"
GPUS = "gapless.gpus"
FINDINGS = "gapless.findings"
GROUPS = (SCENARIOS, OPTIMIZATIONS, GPUS, FINDINGS)

OFF_VARIABLE = "GAPLESS_PLUGINS_OFF"
"""Environment variable that switches plug-ins off: packages, or `package:name` for one object of a
package, with commas between; `all` is every one."""

OWN = "gapless"


@dataclass(frozen=True)
class Plugin(Generic[T]):
    """One object of another package."""

    entry: str
    """Its name in the package's metadata."""
    package: str
    value: T

    @property
    def label(self) -> str:
        """What `GAPLESS_PLUGINS_OFF` takes to leave it out."""
        return f"{self.package}:{self.entry}"


def load(group: str, check: Callable[[object], T]) -> tuple[Plugin[T], ...]:
    """The objects that installed packages add to `group`, by package and name.

    `check` returns the object as what it should be, or raises `UsageError`. One that cannot be
    imported or does not pass is named on stderr, with the reason, and left out.
    """
    found = []
    for point in _installed(group):
        package = _package(point)
        try:
            value = check(point.load())
        except (Exception, SystemExit) as error:  # whatever a foreign module does on import
            skip(f"{package}:{point.name}", f"{type(error).__name__}: {error}")
        else:
            found.append(Plugin(point.name, package, value))
    return tuple(found)


def merged(
    what: str, own: Mapping[str, T], plugins: Iterable[Plugin[T]], name_of: Callable[[T], str]
) -> dict[str, T]:
    """Own objects by name, then those of plug-ins. Raises `UsageError` for a name twice."""
    found = dict(own)
    givers = dict.fromkeys(own, OWN)
    for plugin in plugins:
        name = name_of(plugin.value)
        if name in found:
            raise twice(f"Two {what} are called {name!r}", givers[name], plugin.label)
        found[name] = plugin.value
        givers[name] = plugin.label
    return found


def twice(what: str, first: str, second: str) -> UsageError:
    """The error for two that claim one thing, with how to leave one of them out."""
    off = [label for label in (second, first) if label != OWN]
    return UsageError(
        f"{what}, one of {first} and one of {second}; set {OFF_VARIABLE}={' or '.join(off)} to "
        "leave one out."
    )


@cache
def skip(label: str, reason: str) -> None:
    """Name a plug-in that is left out, and why, once on stderr."""
    first = visible(reason.splitlines()[0].rstrip(".:; "))
    sys.stderr.write(
        f"Warning: the plug-in {label} is left out: {first}; mend or uninstall it, or set "
        f"{OFF_VARIABLE}={label}.\n"
    )


def _installed(group: str) -> list[EntryPoint]:
    off = _switched_off(os.environ.get(OFF_VARIABLE, ""))
    return [
        point
        for point in _sorted(entry_points(group=group))
        if not off & {"all", _package(point), f"{_package(point)}:{point.name}"}
    ]


@cache
def _switched_off(text: str) -> frozenset[str]:
    """The words of the variable; those that name no plug-in are said once."""
    words = frozenset(word.strip() for word in text.split(",") if word.strip())
    if not words:
        return words
    points = [point for group in GROUPS for point in _sorted(entry_points(group=group))]
    known = dict.fromkeys(_package(point) for point in points)
    known |= dict.fromkeys(f"{_package(point)}:{point.name}" for point in points)
    for word in sorted(words - {"all"} - set(known)):
        there = f"there are {', '.join(known)}" if known else "none is installed"
        sys.stderr.write(f"Warning: {OFF_VARIABLE}={visible(word)} names no plug-in; {there}.\n")
    return words


def _sorted(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    return sorted(points, key=lambda point: (_package(point), point.name))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
