"""Activation checkpointing whose layer inputs wait in host memory and come back for the recompute.

All variants run torch's own checkpoint without reentrant autograd, transformers' default, so that
they differ in copies only: RNG and autocast state, keyword arguments, unused gradients, early stop
of the recompute, `torch.autograd.grad` and second-order gradients are torch's, not ours. The first
positional argument of a layer is what moves; everything else stays on the device.

The function enters a model by transformers' own door, `_set_gradient_checkpointing`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from harness.errors import UsageError
from harness.workload import Variant
from optimizations.copy_engine import CopyEngine, open_copy_engine
from optimizations.host_pool import HostPool
from optimizations.input_offload import InputOffloader, OffloadPolicy, StoredInput
from optimizations.tolerances import same_order_tolerance
from optimizations.variants import variant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

_FLAG = "gradient_checkpointing"
_FUNCTION = "_gradient_checkpointing_func"
_HELD = "_gapless_checkpoint_reload_held"
_ABSENT = object()
_MIN_BYTES_GPU = 2 * 2**20 + 1
"""Published: what is larger than 2 MiB."""
_MIN_BYTES_CPU = 64 * 2**10

_VARIANTS = (
    Variant(
        "plain",
        "reference",
        "torch's checkpoint, inputs stay on the device: no copies and no memory saved.",
    ),
    Variant(
        "single-buffer",
        "baseline",
        "Each reload waits for all queued compute, and compute waits for the reload.",
    ),
    Variant(
        "double-buffer",
        "published",
        "Two device buffers in turn: a reload, issued as its layer's backward begins, waits only "
        "for the layer that read its buffer before.",
    ),
    Variant(
        "prefetch",
        "beyond",
        "The next layer's reload is issued before a layer recomputes, both directions have their "
        "own stream, and forward waits for an offload one layer later.",
    ),
    Variant(
        "save-on-cpu",
        "peer",
        "torch's save_on_cpu around its checkpoint, as transformers' offload=True does: both "
        "copies on the compute stream.",
    ),
)
_OFFLOADING = frozenset({"single-buffer", "double-buffer", "prefetch"})


class OpenEngine(Protocol):
    """Opens a copy engine for a device, see `open_copy_engine`."""

    def __call__(self, device: torch.device, *, shared_lane: bool) -> CopyEngine: ...


@dataclass(frozen=True)
class CheckpointReload:
    """Offload of checkpoint inputs to host memory, with copies beside compute."""

    name = "checkpoint-reload"
    summary = (
        "Removes the wait for each checkpoint input's way back from host memory: the copy runs "
        "while the layer before it computes."
    )
    trade_off = (
        "Costs one device buffer of tokens x hidden x bytes for each copy in flight and pinned "
        "host memory for every layer; the most it can gain over a single buffer is the copy "
        "time, and against no offload it gains memory, never time."
    )
    variants = _VARIANTS

    min_bytes: int | None = None
    """Inputs smaller than this stay on the device. `None` stands for 2 MiB on a GPU, as published,
    where a small copy costs more in launches than it frees, and for 64 KiB on the CPU."""
    keep_last: int = 1
    """Inputs of the last layers that stay on the device: backward starts with them, and while it
    computes on them the first reload can run."""
    prefetch_depth: int = 1
    """Layers that `prefetch` reloads ahead; it uses one device buffer more than that."""
    max_deferred_waits: int = 1
    """Offloads that `prefetch` may leave under way at a layer's end."""
    min_free_bytes: int = 512 * 2**20
    """Free device memory below which there is only one device buffer."""
    open_engine: OpenEngine = field(default=open_copy_engine, repr=False)

    def __post_init__(self) -> None:
        for name, least in (
            ("min_bytes", 0),
            ("keep_last", 0),
            ("prefetch_depth", 1),
            ("max_deferred_waits", 0),
            ("min_free_bytes", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"checkpoint-reload has {name}={value}; use {least} or more.")

    def requires(self, model: nn.Module, variant: str) -> str | None:
        variant_of(self, variant)
        if not _doors(model):
            return (
                f"{type(model).__name__} holds no transformers model whose layers support "
                "gradient checkpointing"
            )
        if variant not in _OFFLOADING:
            return None
        for device in {parameter.device for parameter in model.parameters()}:
            if device.type not in {"cpu", "cuda"}:
                return f"there are no copies beside compute on a {device.type} device"
            if device.type == "cuda" and _is_integrated(device):
                return (
                    f"{device} shares its memory with the host, so a copy to the host frees nothing"
                )
        return None

    def attach(self, model: nn.Module) -> CheckpointReloadAttachment:
        reasons = [self.requires(model, variant.name) for variant in _VARIANTS]
        if all(reasons):
            raise UsageError(f"checkpoint-reload cannot be used here: {reasons[0]}.")
        return CheckpointReloadAttachment(self, model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        variant_of(self, variant)
        return same_order_tolerance(dtype)

    def moves(self, value: object) -> bool:
        """Whether a layer's first argument is one dense piece of memory that is worth a copy."""
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return False
        # A tensor made of several, such as DTensor, has no memory of its own.
        if hasattr(value, "__tensor_flatten__") or not value.is_contiguous():
            return False
        min_bytes = self.min_bytes
        if min_bytes is None:
            min_bytes = _MIN_BYTES_CPU if value.device.type == "cpu" else _MIN_BYTES_GPU
        return value.numel() * value.element_size() >= max(min_bytes, 1)

    def policy(self, variant: str) -> OffloadPolicy:
        """How an offloading variant schedules its copies."""
        ahead = self.prefetch_depth if variant == "prefetch" else 0
        return OffloadPolicy(
            num_slots=1 + ahead if ahead else {"single-buffer": 1, "double-buffer": 2}[variant],
            prefetch_depth=ahead,
            max_deferred_waits=self.max_deferred_waits if ahead else 0,
            keep_last=self.keep_last,
            min_free_bytes=self.min_free_bytes,
        )


class CheckpointReloadAttachment:
    """Checkpoint functions for one model. Engines and pinned buffers survive toggling."""

    def __init__(self, settings: CheckpointReload, model: nn.Module) -> None:
        """Raises `UsageError` where another attachment holds the model's checkpointing."""
        self._settings = settings
        self._model = model
        self._modules = [m for door in _doors(model) for m in door.modules() if hasattr(m, _FLAG)]
        if any(module.__dict__.get(_HELD) == id(module) for module in self._modules):
            raise UsageError(
                f"The checkpointing of this {type(model).__name__} is already held by another "
                "checkpoint-reload; detach that one first."
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
            raise UsageError(f"checkpoint-reload={variant} cannot be used here: {reason}.")
        # Buffers survive toggling, so that no timed step allocates them again; those cut short for
        # want of memory are tried anew.
        for offloader in self._offloaders.values():
            if offloader.shortage is not None:
                offloader.release_device_buffers()
        function = self._function(variant)
        for door in _doors(self._model):
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
                engine = self._settings.open_engine(device, shared_lane=shared_lane)
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


def _doors(model: nn.Module) -> list[Any]:
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


def _is_integrated(device: torch.device) -> bool:
    return bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
