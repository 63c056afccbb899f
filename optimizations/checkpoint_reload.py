"""Activation checkpointing whose layer inputs wait in host memory and come back for the recompute.

Source: the double buffer of unslothai/unsloth-zoo #534; `reload_attachment` has the functions that
a model's layers call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.record.finding import Answer
from harness.workload import Choice, Optimization, Variant
from optimizations.variants import variant_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from optimizations.input_offload import OffloadPolicy
    from optimizations.reload_attachment import CheckpointReloadAttachment, OpenEngine

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


@dataclass(frozen=True)
class CheckpointReload(Optimization):
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
    answers = (
        Answer(
            optimization="checkpoint-reload=prefetch",
            kinds=("serialized-copy",),
            phases=("backward", "recompute"),
            least_bytes=1 << 20,
            why="Activations come back from host memory in backward, and compute stands still "
            "for it.",
            instead=(
                'gapless.optimize(model, "auto")  # copies run beside compute, one layer ahead',
            ),
            unless="Short sequences: keep the activations on the device.",
        ),
    )

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
    open_engine: OpenEngine | None = field(default=None, repr=False)
    """Opens copy engines; `None` takes the device's own."""

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
        from optimizations.reload_attachment import checkpointing_doors, is_integrated

        variant_of(self, variant)
        if not checkpointing_doors(model):
            return (
                f"{type(model).__name__} holds no transformers model whose layers support "
                "gradient checkpointing"
            )
        if variant not in _OFFLOADING:
            return None
        for device in {parameter.device for parameter in model.parameters()}:
            if device.type not in {"cpu", "cuda"}:
                return f"there are no copies beside compute on a {device.type} device"
            if device.type == "cuda" and is_integrated(device):
                return (
                    f"{device} shares its memory with the host, so a copy to the host frees nothing"
                )
        return None

    def attach(self, model: nn.Module) -> CheckpointReloadAttachment:
        from optimizations.reload_attachment import CheckpointReloadAttachment

        reasons = [self.requires(model, variant.name) for variant in _VARIANTS]
        if all(reasons):
            raise UsageError(f"checkpoint-reload cannot be used here: {reasons[0]}.")
        return CheckpointReloadAttachment(self, model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        from optimizations.tolerances import same_order_tolerance

        variant_of(self, variant)
        return same_order_tolerance(dtype)

    def moves(self, value: object) -> bool:
        """Whether a layer's first argument is one dense piece of memory that is worth a copy."""
        import torch

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
        from optimizations.input_offload import OffloadPolicy

        ahead = self.prefetch_depth if variant == "prefetch" else 0
        return OffloadPolicy(
            num_slots=1 + ahead if ahead else {"single-buffer": 1, "double-buffer": 2}[variant],
            prefetch_depth=ahead,
            max_deferred_waits=self.max_deferred_waits if ahead else 0,
            keep_last=self.keep_last,
            min_free_bytes=self.min_free_bytes,
        )

    def choose(self, model: nn.Module, *, packed: bool, tokens: int | None) -> Choice:
        from optimizations.reload_choice import reload_choice

        return reload_choice(self, model, tokens)
