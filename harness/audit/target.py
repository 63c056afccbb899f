"""Loads what to audit: `file.py:callable` or `package.module:callable`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.audit.failures import error_text
from harness.boundary.foreign_text import one_line
from harness.errors import GaplessError, UsageError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def load_target(target: str, *, device: str | None = None) -> Callable[[], Any]:
    """The callable that `target` names; a module attribute `DEVICE` is set to `device` first.

    Raises `UsageError` where the file, module or callable does not exist, `WorkloadError` where
    importing it raises.
    """
    where, separator, name = target.rpartition(":")
    if not separator or not where or not name:
        raise UsageError(
            f"{target!r} names no callable; write file.py:callable or package.module:callable."
        )
    module = _load(where)
    if device is not None and hasattr(module, "DEVICE"):
        vars(module)["DEVICE"] = device
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UsageError(f"{where} has no {name!r}; {_offer(module)}.")
    if not callable(found):
        raise UsageError(
            f"{name!r} in {where} is a {type(found).__name__}, not callable; {_offer(module)}."
        )
    return found  # type: ignore[no-any-return]


def make_step(built: Callable[[], Any]) -> Callable[[], Any]:
    """The step of a target: what calling it returns, if that is callable, else the target itself.

    The target is called once to find out.
    """
    result = built()
    return result if callable(result) else built


def _load(where: str) -> ModuleType:
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise UsageError(f"There is no file {where}; check the path.")
        return _import_file(path.resolve())
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        # As for `python -m`, and kept: a step may import more of its project.
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise UsageError(
                f"There is no module {where!r}; check the name, and run from its project's folder."
            ) from error
        raise WorkloadError(f"Importing {where} failed: {error}.") from error
    except (GaplessError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise WorkloadError(f"Importing {where} failed: {_said(error)}.") from error


def _import_file(path: Path) -> ModuleType:
    # A name of its own: a user's `train.py` must not shadow, or be shadowed by, a package.
    name = f"_gapless_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not Python source; name a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (GaplessError, KeyboardInterrupt):
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        raise WorkloadError(f"Importing {path} failed: {_said(error)}.") from error
    finally:
        with suppress(ValueError, AttributeError):  # The file may have changed the path itself.
            sys.path.remove(folder)
    return module


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error_text(error))}".rstrip(": .")


def _offer(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    return f"it defines {', '.join(sorted(names))}" if names else "it defines no callable"
