"""What other packages conclude from the presence of a GPU, kept apart from the time without one.

Packages look once whether there is a GPU and remember it, so what they remembered is forgotten when
a device comes and put back when it goes. One that loads GPU code while it is imported is imported
as on a machine without a GPU: its CPU kernels compute the values here. Triton, which every torch
for CUDA on Linux brings, is not to be found: a library's own Triton kernels start on real GPUs
only, and those who look for it have another way.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

_IMPORTED_WITHOUT_GPU = frozenset({"bitsandbytes"})
"""Packages that load a CUDA library where torch sees a GPU."""

_CACHES_IN = (
    "transformers.utils.import_utils", "transformers.utils.generic", "transformers.utils",
    "transformers.integrations.hub_kernels", "transformers.integrations.moe",
    "accelerate.utils.imports", "accelerate.utils.environment", "accelerate.utils.other",
    "peft.import_utils", "trl.import_utils", "torch.distributed.device_mesh",
)  # fmt: skip
"""Modules whose cached functions answer what the machine has."""

_REMEMBERED: dict[str, tuple[str, ...]] = {
    "transformers.modeling_flash_attention_utils": (
        "_loaded_implementation", "_flash_fn", "_flash_varlen_fn", "_flash_with_kvcache_fn",
        "_pad_fn", "_unpad_fn", "_process_flash_kwargs_fn", "_process_with_kvcache_kwargs_fn",
    ),
    "trl.kernels.chunked_logprob": ("_TRITON_AVAILABLE",),
}  # fmt: skip
"""Module -> variables that hold what was found when first asked; `None` before."""

_STATES = (
    ("accelerate.state", "PartialState"),
    ("accelerate.state", "AcceleratorState"),
    ("accelerate.state", "GradientState"),
)
"""Classes whose instances share one dictionary, with the device in it."""


@contextmanager
def libraries_see_the_device() -> Iterator[None]:
    """Libraries look at the machine anew inside, and again afterwards."""
    finder = _ImportWithoutGpu()
    before = {
        (module, name): getattr(sys.modules[module], name)
        for module, names in _REMEMBERED.items()
        if module in sys.modules
        for name in names
        if hasattr(sys.modules[module], name)
    }
    states = [(state, dict(state)) for state in _shared_states()]
    _forget()
    for state, _ in states:
        state.clear()
    sys.meta_path.insert(0, finder)
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = _without_triton(find_spec)
    try:
        yield
    finally:
        importlib.util.find_spec = find_spec
        sys.meta_path.remove(finder)
        _forget()
        for (module, name), value in before.items():
            setattr(sys.modules[module], name, value)
        for state in _shared_states():
            state.clear()
        for state, content in states:
            state.update(content)


def _without_triton(
    find_spec: Callable[..., importlib.machinery.ModuleSpec | None],
) -> Callable[..., importlib.machinery.ModuleSpec | None]:
    def find(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name == "triton" else find_spec(name, package)

    return find


def _forget() -> None:
    for name in _CACHES_IN:
        module = sys.modules.get(name)
        for value in list(vars(module).values()) if module else ():
            clear = getattr(value, "cache_clear", None)
            if clear is not None and callable(value) and not isinstance(value, type):
                clear()
    for name, variables in _REMEMBERED.items():
        module = sys.modules.get(name)
        for variable in variables if module else ():
            if hasattr(module, variable):
                setattr(module, variable, None)


def _shared_states() -> list[dict[str, Any]]:
    found = []
    for module, name in _STATES:
        state = getattr(getattr(sys.modules.get(module), name, None), "_shared_state", None)
        if isinstance(state, dict):
            found.append(state)
    return found


class _ImportWithoutGpu(importlib.abc.MetaPathFinder):
    """Finds the packages that are imported as on a machine without a GPU."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _IMPORTED_WITHOUT_GPU:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _LoaderWithoutGpu(spec.loader.name, spec.loader.path)
        return spec


class _LoaderWithoutGpu(importlib.machinery.SourceFileLoader):
    """Runs a module while `torch.cuda.is_available()` says no."""

    def exec_module(self, module: ModuleType) -> None:
        answer, torch.cuda.is_available = torch.cuda.is_available, lambda: False
        try:
            super().exec_module(module)
        finally:
            torch.cuda.is_available = answer
