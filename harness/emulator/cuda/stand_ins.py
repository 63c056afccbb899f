"""Packages that need a GPU: there while a device is emulated, gone afterwards."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from contextlib import contextmanager
from functools import wraps
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def _stands_for(module: str, note: Callable[[str], None]) -> dict[str, Any]:
    from harness.emulator.cuda.flash_attention import DISTRIBUTIONS, MODULES

    package, version = DISTRIBUTIONS[module.partition(".")[0]]
    sentence = (
        f"A stand-in for {package} {version} ran: its functions by their formulas, waits as the "
        "package has them."
    )

    def saying(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            note(sentence)
            return function(*args, **kwargs)

        return call

    def noted(value: Any) -> Any:
        if isinstance(value, FunctionType):
            return saying(value)
        if isinstance(value, type):
            return type(value.__name__, (value,), {"__init__": saying(vars(value)["__init__"])})
        return value

    return {name: noted(value) for name, value in MODULES[module].items()}


@contextmanager
def stand_ins(note: Callable[[str], None]) -> Iterator[None]:
    """`flash_attn` and `flash_attn_interface` can be imported inside; `note` is told which ran."""
    from harness.emulator.cuda.flash_attention import DISTRIBUTIONS

    finder = _Finder(note)
    # transformers 5.10 looks at the machine's packages once, while it is imported.
    transformers = sys.modules.get("transformers.utils.import_utils")
    listed = getattr(transformers, "PACKAGE_DISTRIBUTION_MAPPING", {})
    added = {module: [name] for module, (name, _) in DISTRIBUTIONS.items() if module not in listed}
    listed.update(added)
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for module in added:
            listed.pop(module, None)
        for name in list(sys.modules):
            if _is_ours(name):
                del sys.modules[name]
        sys.modules.update(hidden)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("flash_attn", "flash_attn_interface")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_ours(fullname):
            return None
        from harness.emulator.cuda.flash_attention import MODULES

        if fullname not in MODULES:
            return None
        package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(fullname, self._note), is_package=package
        )

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        from harness.emulator.cuda.flash_attention import DISTRIBUTIONS

        wanted = None if context is None else context.name
        for module, (name, version) in DISTRIBUTIONS.items():
            if wanted is None or wanted.replace("_", "-").lower() == name:
                yield _Distribution(module, name, version)


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name = name
        self._note = note

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_stands_for(self._name, self._note))


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, module: str, name: str, version: str) -> None:
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "top_level.txt": f"{module}\n",
        }

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)
