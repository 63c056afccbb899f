"""Checkpoint functions that move a layer's input to the host and back, on one model.

All variants run torch's own checkpoint without reentrant autograd, transformers' default, so that
they differ in copies only: RNG and autocast state, keyword arguments, unused gradients, early stop
of the recompute, `torch.autograd.grad` and second-order gradients are torch's, not ours. The first
positional argument of a layer is what moves; everything else stays on the device.

The function enters a model by transformers' own door, `_set_gradient_checkpointing`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from harness.errors import UsageError
from optimizations.copy_engine import CopyEngine, open_copy_engine
from optimizations.host_pool import HostPool
from optimizations.input_offload import InputOffloader, OffloadPolicy, StoredInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

_FLAG = "gradient_checkpointing"
_FUNCTION = "_gradient_checkpointing_func"
_HELD = "_gapless_checkpoint_reload_held"
_ABSENT = object()


class OpenEngine(Protocol):
    """Opens a copy engine for a device, see `open_copy_engine`."""

    def __call__(self, device: torch.device, *, shared_lane: bool) -> CopyEngine: ...


class ReloadSettings(Protocol):
    """What decides which inputs move, and how."""

    @property
    def name(self) -> str: ...

    @property
    def open_engine(self) -> OpenEngine | None: ...

    def requires(self, model: nn.Module, variant: str) -> str | None: ...

    def moves(self, value: object) -> bool: ...

    def policy(self, variant: str) -> OffloadPolicy: ...


class CheckpointReloadAttachment:
    """Checkpoint functions for one model. Engines and pinned buffers survive toggling."""

    def __init__(self, settings: ReloadSettings, model: nn.Module) -> None:
        """Raises `UsageError` where another attachment holds the model's checkpointing."""
        self._settings = settings
        self._model = model
        self._modules = [
            m for door in checkpointing_doors(model) for m in door.modules() if hasattr(m, _FLAG)
        ]
        if any(module.__dict__.get(_HELD) == id(module) for module in self._modules):
            raise UsageError(
                f"The checkpointing of this {type(model).__name__} is already held by another "
                f"{settings.name}; detach that one first."
            )
        for module in self._modules:
            # Its own id, so that a deep copy of an attached model is not held.
            module.__dict__[_HELD] = id(module)
        self._before = [
            {name: module.__dict__.get(name, _ABSENT) for name in (_FLAG, _FUNCTION)}
            for module in self._modules
        ]
        # Where the user checkpoints some of the layers, those stay the ones.
        self._flags = [bool(getattr(module, _FLAG)) for module in self._modules]
        self._pools: dict[torch.device, HostPool] = {}
        self._engines: dict[tuple[torch.device, bool], CopyEngine] = {}
        self._offloaders: dict[tuple[str, torch.device], InputOffloader] = {}
        self._attached = True

    def select(self, variant: str) -> None:
        """Raises `UsageError` for an unknown variant, an unmet need, or after `detach`."""
        if not self._attached:
            raise UsageError(f"Cannot select '{variant}': it is detached; attach it again.")
        reason = self._settings.requires(self._model, variant)
        if reason is not None:
            raise UsageError(f"{self._settings.name}={variant} cannot be used here: {reason}.")
        # Buffers survive toggling, so that no timed step allocates them again; those cut short for
        # want of memory are tried anew.
        for offloader in self._offloaders.values():
            if offloader.shortage is not None:
                offloader.release_device_buffers()
        function = self._function(variant)
        for door in checkpointing_doors(self._model):
            door._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=function)
        if any(self._flags):
            for module, flag in zip(self._modules, self._flags, strict=True):
                setattr(module, _FLAG, flag)

    def detach(self) -> None:
        if not self._attached:
            return
        self._attached = False
        for module, before in zip(self._modules, self._before, strict=True):
            for name, value in before.items():
                module.__dict__.pop(name, None)
                if value is not _ABSENT:
                    module.__dict__[name] = value
            del module.__dict__[_HELD]
        for offloader in self._offloaders.values():
            offloader.finish()
        for engine in self._engines.values():
            engine.close()
        for pool in self._pools.values():
            pool.clear()

    def device_buffer_bytes(self) -> int:
        """Device memory that the reload buffers hold now; 0 before the first backward."""
        return sum(offloader.device_buffer_bytes for offloader in self._offloaders.values())

    def host_buffer_bytes(self) -> int:
        """Host memory that the pool holds now, lent out or not."""
        return sum(pool.num_bytes for pool in self._pools.values())

    def shortages(self) -> tuple[str, ...]:
        """One sentence part for each device where memory allowed one buffer only."""
        return tuple(
            f"{variant} on {device}: {offloader.shortage}"
            for (variant, device), offloader in self._offloaders.items()
            if offloader.shortage is not None
        )

    def _function(self, variant: str) -> Callable[..., Any]:
        if variant == "plain":
            return partial(checkpoint, use_reentrant=False)
        if variant == "save-on-cpu":
            return _checkpoint_saving_on_cpu
        return _OffloadingCheckpoint(self._settings.moves, partial(self._offloader, variant))

    def _offloader(self, variant: str, device: torch.device) -> InputOffloader:
        offloader = self._offloaders.get((variant, device))
        if offloader is None:
            shared_lane = variant != "prefetch"
            engine = self._engines.get((device, shared_lane))
            if engine is None:
                engine = (self._settings.open_engine or open_copy_engine)(
                    device, shared_lane=shared_lane
                )
                self._engines[device, shared_lane] = engine
            pool = self._pools.setdefault(device, HostPool(engine))
            offloader = InputOffloader(engine, pool, self._settings.policy(variant))
            self._offloaders[variant, device] = offloader
        return offloader


class _OffloadingCheckpoint:
    """A checkpoint function, `(function, *args) -> outputs`, that offloads its first argument."""

    def __init__(
        self,
        moves: Callable[[object], bool],
        offloader_for: Callable[[torch.device], InputOffloader],
    ) -> None:
        self._moves = moves
        self._offloader_for = offloader_for
        self._running = threading.local()

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        if not args or self._inside_another or not self._moves(args[0]):
            return checkpoint(function, *args, use_reentrant=False)
        hidden, *rest = args
        del args
        offloader = self._offloader_for(hidden.device)
        hooks = saved_tensors_hooks(
            partial(_pack, offloader, hidden.shape), partial(_unpack, offloader)
        )
        try:
            with hooks:
                return checkpoint(partial(self._run, function, rest), hidden, use_reentrant=False)
        finally:
            offloader.end_of_layer()

    def _run(self, function: Callable[..., Any], rest: list[Any], hidden: torch.Tensor) -> Any:
        with self._marked():
            return function(hidden, *rest)

    def __deepcopy__(self, memo: dict[int, Any]) -> _OffloadingCheckpoint:
        """A copy of the model uses the same engines and buffers, so that it can be copied."""
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A pickle of the model has plain checkpointing: engines and buffers are this process's."""
        return partial(checkpoint, use_reentrant=False).__reduce__()

    @property
    def _inside_another(self) -> bool:
        # A checkpoint inside a checkpointed layer is forgotten after the outer forward and made
        # again in the recompute; to offload its input then would only add copies.
        return getattr(self._running, "inside", False)

    @contextmanager
    def _marked(self) -> Iterator[None]:
        before = self._inside_another
        self._running.inside = True
        try:
            yield
        finally:
            self._running.inside = before


def _pack(
    offloader: InputOffloader, shape: torch.Size, tensor: torch.Tensor
) -> torch.Tensor | StoredInput:
    # Some versions of torch save an empty tensor of their own with the input.
    return offloader.store(tensor) if tensor.shape == shape else tensor


def _unpack(offloader: InputOffloader, packed: torch.Tensor | StoredInput) -> torch.Tensor:
    return offloader.fetch(packed) if isinstance(packed, StoredInput) else packed


def _checkpoint_saving_on_cpu(function: Callable[..., Any], *args: Any) -> Any:
    with save_on_cpu(pin_memory=True):
        return checkpoint(function, *args, use_reentrant=False)


def checkpointing_doors(model: nn.Module) -> list[Any]:
    """The outermost modules with transformers' door to checkpointing, wrappers such as peft's open.

    Only those that hold a layer with the flag; the door raises for others.
    """
    doors: list[Any] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside or not hasattr(type(module), "_set_gradient_checkpointing"):
            continue
        if any(hasattr(part, _FLAG) for part in module.modules()):
            doors.append(module)
            inside.update(id(part) for part in module.modules())
    return doors


def is_integrated(device: torch.device) -> bool:
    return bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
