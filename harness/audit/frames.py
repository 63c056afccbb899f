"""Classifies code: the user's line that caused an op, and the library line in between.

Walking the Python stack is the costliest part of an audit, so every code object is judged once, and
the part of the stack above a module call is walked once per call.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from harness.origin import in_library, own_package

if TYPE_CHECKING:
    from types import CodeType


class Code(IntEnum):
    """What a code object is to the audit."""

    SKIP = 0
    """Plumbing: torch's own internals, the standard library, this package."""
    USER = 1
    LIBRARY = 2
    MODULE_CALL = 3
    """The wrapper around `nn.Module.__call__`."""
    ENGINE = 4
    """Where Python enters the autograd engine."""


class Point(NamedTuple):
    """A place in the stack, cheap to take: resolved to a line only where it is shown."""

    code: CodeType
    instruction: int


class Place(NamedTuple):
    """A line of source."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str | None:
        """The line itself, without indentation."""
        return linecache.getline(self.file, self.line).strip() or None


_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_TORCH_LIBRARY = tuple(
    f"{_TORCH}{part.replace('/', os.sep)}"
    for part in (
        "distributions/", "optim/", "amp/", "cuda/amp/", "nn/functional.py", "functional.py",
        "nn/utils/", "nn/init.py", "nn/modules/loss.py", "nn/modules/rnn.py", "distributed/",
        "utils/data/", "_tensor_str.py",
    )
)  # fmt: skip
"""Parts of torch whose lines explain a wait to its user."""
_STDLIB = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_PLUMBING = frozenset({"gapless", "harness"})
"""Packages of this project that are not part of a step; the others hold steps of their own."""


class CodeClassifier:
    """Classifies code objects, each once."""

    def __init__(self, user_files: tuple[str, ...] = ()) -> None:
        self.user_files = frozenset(str(Path(file).resolve()) for file in user_files)
        """Files that count as the user's wherever they lie, such as a script of a package."""
        self._kinds: dict[CodeType, Code] = {}

    def kind(self, code: CodeType) -> Code:
        """The kind of this code object."""
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = self._judge(code)
        return kind

    @staticmethod
    def in_torch(code: CodeType) -> bool:
        """Whether torch itself holds this code."""
        return code.co_filename.startswith(_TORCH)

    def mark(self, code: CodeType, kind: Code) -> None:
        """Set the kind of one code object."""
        self._kinds[code] = kind

    def _judge(self, code: CodeType) -> Code:
        file = code.co_filename
        if file in self.user_files:
            return Code.USER
        if code.co_name == "_engine_run_backward" and file.startswith(_TORCH):
            return Code.ENGINE
        if file.startswith(_TORCH_LIBRARY):
            return Code.LIBRARY
        if file.startswith(("<frozen", _TORCH)) or own_package(file) in _PLUMBING:
            return Code.SKIP
        if in_library(file):
            return Code.LIBRARY
        if file.startswith(_STDLIB):
            return Code.SKIP
        if file.startswith("<"):
            # Generated code (dataclasses, namedtuples) has no source; a notebook cell does.
            return Code.USER if linecache.getlines(file) else Code.SKIP
        return Code.USER


@cache
def place_of(point: Point) -> Place:
    """The source line of a point."""
    line = point.code.co_firstlineno
    for start, end, number in point.code.co_lines():
        if start <= point.instruction < end and number is not None:
            line = number
            break
    return Place(point.code.co_filename, line, point.code.co_qualname)
