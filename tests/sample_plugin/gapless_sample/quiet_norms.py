"""Switches the reads of norms off in modules that have the switch `reads_norms`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.record.finding import Answer
from harness.workload import Choice, Optimization, Variant

if TYPE_CHECKING:
    import torch
    from torch import nn


class QuietNormsAttachment:
    """The switches of one model."""

    def __init__(self, model: nn.Module) -> None:
        self._modules: list[Any] = [m for m in model.modules() if hasattr(m, "reads_norms")]
        self._before = [module.reads_norms for module in self._modules]

    def select(self, variant: str) -> None:
        for module in self._modules:
            module.reads_norms = variant == "loud"

    def detach(self) -> None:
        for module, before in zip(self._modules, self._before, strict=True):
            module.reads_norms = before


@dataclass(frozen=True)
class QuietNorms(Optimization):
    """Norms that nobody looks at are not read."""

    name = "quiet-norms"
    summary = "Removes the read of a norm in each layer."
    trade_off = "Nobody sees the norms."
    variants = (
        Variant("loud", "baseline", "Reads the norm in each layer."),
        Variant("quiet", "beyond", "Reads none."),
    )
    answers = (Answer(optimization="quiet-norms=quiet", kinds=("norm-read",)),)

    def requires(self, model: nn.Module, variant: str) -> str | None:
        return None

    def attach(self, model: nn.Module) -> QuietNormsAttachment:
        return QuietNormsAttachment(model)

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        return 0.0, "a read changes no value"

    def choose(self, model: nn.Module, *, packed: bool, tokens: int | None) -> Choice:
        if any(hasattr(module, "reads_norms") for module in model.modules()):
            return Choice(self.name, "quiet", "its norms are read in each layer")
        return Choice(self.name, None, "no module reads its norm")
