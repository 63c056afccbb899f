"""What an audit leaves behind in the process: nothing, whatever the audited code did."""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import gapless

if TYPE_CHECKING:
    from pathlib import Path


class PassingOps(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class PassingCalls(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def state() -> dict[str, Any]:
    return {
        "dispatch modes": _get_current_dispatch_mode_stack(),
        "function modes": _get_current_function_mode_stack(),
        "records gradients": torch.is_grad_enabled(),
        "exit hooks": atexit._ncallbacks(),
        "activities": dir(ProfilerActivity),
        "names of torch": dir(torch),
        "names of torch.cuda": dir(torch.cuda),
        "names of tensors": dir(torch.Tensor),
        "has a GPU": torch.cuda.is_available(),
        "makes tensors on": torch.zeros(1).device,
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),  # noqa: PTH208
        "threads": {thread.name for thread in threading.enumerate()},
    }


@pytest.mark.parametrize("leave", [PassingOps, PassingCalls])
def test_an_audit_leaves_nothing_behind(
    leave: type[PassingOps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def step() -> None:
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(2, 4, device="cuda")).sum().backward()
        optimizer.step()

    with gapless.audit(on="emulated"):
        step()  # What is imported and registered once in a process is not the point.
    before = state()
    with gapless.audit(on="emulated") as audit:
        leave().__enter__()
        torch.set_grad_enabled(True)
        step()
        torch.set_grad_enabled(False)
    assert audit.report.steps == 1
    assert state() == before


def test_a_mode_left_by_code_that_raises_is_gone() -> None:
    before = state()

    def fails() -> None:
        PassingOps().__enter__()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), gapless.audit(on="emulated"):
        fails()
    assert state()["dispatch modes"] == before["dispatch modes"]
