"""Errors raised inside a backward pass, carried past the autograd engine to the caller.

The engine unwinds through a guard that asks this package, in Python, for the device type, while the
error indicator of a failed hook or op is still set. Python forbids returning in that state, and the
guard may not throw, so the process would abort. The error is therefore taken off the indicator
there, and raised again where the backward pass was called.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.tensors.patches import Patches

_kind, _value, _traceback = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
_slots = (ctypes.byref(_kind), ctypes.byref(_value), ctypes.byref(_traceback))
_fetch = ctypes.pythonapi.PyErr_Fetch
_fetch.restype = None
_normalize = ctypes.pythonapi.PyErr_NormalizeException
_normalize.restype = None
_put_aside: list[BaseException] = []


def put_aside() -> None:
    """Take the error that is set, if any, off the indicator and keep it."""
    # This must be the first call: any other would be refused with the error set.
    _fetch(*_slots)
    if _kind.value is not None:
        _keep()


def _keep() -> None:
    _normalize(*_slots)
    error: BaseException = ctypes.cast(_value, ctypes.py_object).value
    if _traceback.value is not None:
        error = error.with_traceback(ctypes.cast(_traceback, ctypes.py_object).value)
    for slot in (_kind, _value, _traceback):
        if slot.value is not None:
            ctypes.pythonapi.Py_DecRef(slot)
    _put_aside.append(error)


def patch_backward(patches: Patches) -> None:
    """Raise what was put aside where the backward pass was called."""
    original = torch.autograd.graph._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        _put_aside.clear()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            if not _put_aside:
                raise
            first = _put_aside[0]
            _put_aside.clear()
            if first is error:
                raise
            raise first from None

    _patch_both(patches, run_backward)


def _patch_both(patches: Patches, run_backward: Callable[..., Any]) -> None:
    patches.set(torch.autograd.graph, "_engine_run_backward", run_backward)
    patches.set(torch.autograd, "_engine_run_backward", run_backward)
