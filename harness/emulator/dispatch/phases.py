"""Which part of the step is running: data, forward, recompute, backward or optimizer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from harness.emulator.tensors.op_events import AuditedPhase
    from harness.emulator.tensors.patches import Patches

_CHECKPOINT_FILE = str(Path("torch", "utils", "checkpoint.py"))


class PhaseTracker:
    """Follows the phases of one thread while the device is active.

    The forward phase is everything that is no other, as in "what runs before `backward()`".
    """

    def __init__(self) -> None:
        self._in_optimizer = 0
        self._in_data = 0
        self._last_state: tuple[int, int] | None = None
        self._last_recompute = False
        self._hooks: list[Any] = []
        self.on_optimizer_step: list[Callable[[torch.optim.Optimizer], None]] = []
        """Called after each optimizer step."""

    def current(self, *, exactly: bool = False) -> AuditedPhase:
        """The phase of the op that is being dispatched.

        `exactly` also tells the forward of a custom `autograd.Function` that is recomputed, at the
        price of a walk up the stack.
        """
        task = torch._C._current_graph_task_id()
        if task != -1:
            if exactly:
                return "recompute" if _inside_checkpoint() else "backward"
            if torch.is_grad_enabled() and self._is_recompute(task):
                return "recompute"
            return "backward"
        if self._in_optimizer:
            return "optimizer"
        return "data" if self._in_data else "forward"

    def start(self, patches: Patches) -> None:
        """Begin to follow optimizers and data loaders."""
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        patches.wrap(dataloader._BaseDataLoaderIter, "__next__", self._next_batch)

    def stop(self) -> None:
        """Remove what `start` installed, patches excepted."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._in_optimizer = self._in_data = 0

    def _is_recompute(self, task: int) -> bool:
        # Grad mode is on in a backward pass during recompute, and for `create_graph=True`. The
        # call stack tells them apart; it is walked once per node, not per op.
        node: Any = torch._C._current_autograd_node()
        state = (task, node._sequence_nr() if node is not None else -1)
        if state != self._last_state:
            self._last_state = state
            self._last_recompute = _inside_checkpoint()
        return self._last_recompute

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._in_optimizer += 1

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._in_optimizer = max(0, self._in_optimizer - 1)
        for notify in self.on_optimizer_step:
            notify(optimizer)

    def _next_batch(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        self._in_data += 1
        try:
            return original(iterator)
        finally:
            self._in_data -= 1


def _inside_checkpoint() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_CHECKPOINT_FILE):
            return True
        if frame.f_code.co_name == "_engine_run_backward":
            return False
        frame = frame.f_back
    return False
