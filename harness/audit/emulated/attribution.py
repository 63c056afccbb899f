"""Who caused an op: source line, library line and module, in forward and in backward.

In backward there is no user frame, only the autograd engine. The node that runs carries the
sequence number it got in forward, so the forward line is remembered under that number, and found
again across checkpoint recompute and custom `autograd.Function`s.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch._C._autograd import _get_sequence_nr

from harness.audit.frames import Code, CodeClassifier, Point

if TYPE_CHECKING:
    from types import FrameType

    from harness.emulator.tensors.patches import Patches

_MOST_NODES = 400_000
"""Forward lines remembered; older ones go first (their graphs are long gone)."""


class Cause(NamedTuple):
    """What led to an op."""

    user: Point | None
    library: Point | None
    module: torch.nn.Module | None
    module_call: int
    """Number of the module call it ran in; 0 outside of any."""


class _ModuleCall:
    """One running `nn.Module.__call__`, with what lies above it on the stack."""

    __slots__ = ("above", "module", "number")

    def __init__(self, module: torch.nn.Module, number: int) -> None:
        self.module = module
        self.number = number
        self.above: tuple[Point | None, Point | None] | None = None


class Attribution:
    """Follows module calls and autograd nodes on one thread, and explains ops."""

    def __init__(self, classifier: CodeClassifier) -> None:
        self.classifier = classifier
        self._calls: list[_ModuleCall] = []
        self._num_calls = 0
        self._forward: dict[int, Cause] = {}
        self._last_sequence = -1
        self._roots: WeakKeyDictionary[torch.nn.Module, dict[int, str]] = WeakKeyDictionary()

    def start(self, patches: Patches) -> None:
        """Begin to follow module calls."""
        original = torch.nn.Module.__call__
        calls = self._calls

        def call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._num_calls += 1
            if not calls and module not in self._roots:
                self._roots[module] = {}
            calls.append(_ModuleCall(module, self._num_calls))
            try:
                return original(module, *args, **kwargs)
            finally:
                calls.pop()

        self.classifier.mark(call_module.__code__, Code.MODULE_CALL)
        patches.set(torch.nn.Module, "__call__", call_module)

    def before_op(self) -> None:
        """Remember the line of an op that made an autograd node. Runs at every op: cheap."""
        sequence = _get_sequence_nr()
        if sequence == self._last_sequence:
            return
        self._last_sequence = sequence
        self._forward[sequence - 1] = self._explain(sys._getframe(2))
        if len(self._forward) > _MOST_NODES:
            for number in list(self._forward)[: _MOST_NODES // 2]:
                del self._forward[number]

    @property
    def module_call(self) -> int:
        """Number of the innermost module call that runs; 0 outside of any."""
        return self._calls[-1].number if self._calls else 0

    @property
    def module(self) -> torch.nn.Module | None:
        """The innermost module that runs."""
        return self._calls[-1].module if self._calls else None

    def nearest(self) -> Point | None:
        """The innermost line outside of torch that runs: the user's, or another library's."""
        frame: FrameType | None = sys._getframe(1)
        kind = self.classifier.kind
        while frame is not None:
            code = frame.f_code
            what = kind(code)
            if what is Code.USER or (what is Code.LIBRARY and not self.classifier.in_torch(code)):
                return Point(code, frame.f_lasti)
            frame = frame.f_back
        return None

    def explain(self) -> Cause:
        """Who caused the op that is being dispatched."""
        return self._explain(sys._getframe(1))

    def module_path(self, module: torch.nn.Module | None) -> str | None:
        """Path of a module below the model it is part of, or its class name if it is the model."""
        if module is None:
            return None
        for root, names in self._roots.items():
            if not names:
                names.update({id(child): name for name, child in root.named_modules()})
            name = names.get(id(module))
            if name:
                return name
        return type(module).__name__

    def _explain(self, frame: FrameType) -> Cause:
        in_backward = torch._C._current_graph_task_id() != -1
        user, library, boundary = self._walk(frame, len(self._calls) - 1)
        call = self._calls[-1] if self._calls else None
        if in_backward and boundary is not None and user is None:
            forward = self._forward_cause()
            if forward is not None:
                return Cause(
                    forward.user,
                    library or forward.library,
                    forward.module if call is None else call.module,
                    forward.module_call if call is None else call.number,
                )
            user, more, _ = self._walk(boundary.f_back, len(self._calls) - 1, through=True)
            library = library or more
        return Cause(
            user, library, None if call is None else call.module, 0 if call is None else call.number
        )

    def _walk(
        self, frame: FrameType | None, depth: int, through: bool = False
    ) -> tuple[Point | None, Point | None, FrameType | None]:
        """User point, library point, and the engine's frame if that came before a user's."""
        kind = self.classifier.kind
        library: Point | None = None
        while frame is not None:
            code = frame.f_code
            what = kind(code)
            if what:
                if what is Code.USER:
                    return Point(code, frame.f_lasti), library, None
                if what is Code.LIBRARY:
                    if library is None:
                        library = Point(code, frame.f_lasti)
                elif what is Code.MODULE_CALL:
                    if depth < 0:
                        frame = frame.f_back
                        continue
                    call = self._calls[depth]
                    if call.above is None:
                        user, above, boundary = self._walk(frame.f_back, depth - 1, through)
                        if boundary is not None:
                            return None, library or above, boundary
                        call.above = (user, above)
                    return call.above[0], library or call.above[1], None
                elif not through:
                    return None, library, frame
            frame = frame.f_back
        return None, library, None

    def _forward_cause(self) -> Cause | None:
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return None
        return self._forward.get(node._sequence_nr())
