"""The two interfaces of the harness: workloads, which it times, and optimizations it toggles.

A scenario builds a `Workload`; an optimization attaches to the workload's model once and then
selects one of its variants as often as asked, without rebuilding anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from harness.record.finding import Answer
    from harness.record.records import ScenarioRecord

VariantRole = Literal["baseline", "published", "beyond", "peer", "reference"]

PACKED_ATTENTION = ("sdpa-mask", "varlen")
"""Attention over `PackedDocuments`, by its kernels. It is the library's under neither name: a model
has it while an optimization that offers it is attached."""


@dataclass(frozen=True, eq=False)
class PackedDocuments:
    """The documents packed into one row, as the collator knows them.

    Reaches every attention layer as the keyword argument `packed_documents` of the model call.
    A new one is made for each batch and each step, so that its identity distinguishes batches.
    """

    lengths: tuple[int, ...]
    """Tokens of each document, as host integers; their sum is the row's number of tokens."""
    lengths_on_device: torch.Tensor
    """The same, `int32[num_documents]`, moved with the batch."""


@runtime_checkable
class Workload(Protocol):
    """One training step in three parts, on a model that is built once.

    The phases run in order; each may rely on the one before. `forward` moves the batch's tensors
    to the device, as a training loop does, so that this is inside the timed region.
    """

    model: nn.Module
    device: torch.device
    num_tokens: int
    """Tokens in one batch, padding included."""
    num_batches: int

    def describe(self) -> ScenarioRecord:
        """What was built, for the record."""
        ...

    def select_batch(self, index: int) -> None:
        """Use batch `index % num_batches` from the next `forward` on."""
        ...

    def forward(self) -> torch.Tensor:
        """Move the batch, compute and return the loss, 0-dim, on the device, not read."""
        ...

    def backward(self) -> None:
        """Backpropagate the loss of the last `forward`."""
        ...

    def optimizer_step(self) -> None:
        """Step the optimizer and clear the gradients."""
        ...

    def zero_grad(self) -> None:
        """Clear the gradients without a step."""
        ...


@runtime_checkable
class HasOptimizer(Protocol):
    """A workload that exposes its optimizer, so that a run which inspects each arm from the same
    state restores moments and step counts with the weights."""

    optimizer: torch.optim.Optimizer


@dataclass(frozen=True)
class Variant:
    """One of the implementations that an optimization selects from."""

    name: str
    role: VariantRole
    summary: str
    """One sentence: what it does."""


class Attachment(Protocol):
    """An optimization attached to one model. Pools and caches live here and survive toggling."""

    def select(self, variant: str) -> None:
        """Make the model use this variant from the next forward on; cheap and repeatable."""
        ...

    def detach(self) -> None:
        """Leave the model exactly as it was before `attach`; calling it twice is harmless."""
        ...


@dataclass(frozen=True)
class Choice:
    """What automatic choice decided about one optimization, and why."""

    optimization: str
    variant: str | None
    """`None` leaves it off."""
    reason: str

    def __str__(self) -> str:
        return f"{self.optimization}: {self.variant or 'off'}, {self.reason}"


class Detachable(Protocol):
    """Something that was put on a model."""

    def detach(self) -> None:
        """Take it off; calling it twice is harmless."""
        ...


class Optimization(Protocol):
    """One fix with its variants. Implementations derive from it, as frozen dataclasses of their
    settings, and give at least what has no answer here.

    The file of an implementation is imported wherever optimizations are listed: it leaves torch
    and the libraries to the methods that take a model.
    """

    @property
    def name(self) -> str:
        """Stable name for CLI and records, in lower case with hyphens."""
        ...

    @property
    def summary(self) -> str:
        """One sentence: what it removes."""
        ...

    @property
    def trade_off(self) -> str:
        """One sentence: what it costs, and when it does not help."""
        ...

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All variants; exactly one has the role `baseline`, at most one `published`."""
        ...

    def requires(self, model: nn.Module, variant: str) -> str | None:
        """Why this variant cannot run on this model and machine, or `None` if it can.

        It applies to a model that can have one of its variants; that is asked of a model without
        weights, on `meta`.
        """
        ...

    def attach(self, model: nn.Module) -> Attachment:
        """Prepare to toggle on this model; changes nothing that a forward computes until `select`.

        Raises `UsageError` where `requires` gives a reason for every variant, or where another
        attachment already holds the same place of the model.
        """
        ...

    def tolerance(self, variant: str, dtype: torch.dtype) -> tuple[float, str]:
        """Allowed largest relative difference of loss and gradients against the baseline, and why.

        0.0 asks for equality to the last bit.
        """
        ...

    @property
    def removes_syncs(self) -> bool:
        """Whether its baseline makes the host wait for the device and stands for what a scenario
        does without it. An audit of a scenario then has that baseline, and fixes it."""
        return False

    @property
    def attentions(self) -> tuple[str, ...]:
        """Attention it offers under names that are not the library's, the usual one first."""
        return ()

    def using(self, attention: str) -> Self:
        """The same with one of its `attentions`."""
        return self

    def suited_to(self, model: nn.Module) -> Self:
        """The same with the settings that fit this model on its device."""
        return self

    @property
    def saved_work(self) -> str | None:
        """The host's work that it saves, in the plural, such as `mask rebuilds`: what a modelled
        step that gains more than its waits cost is explained by."""
        return None

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Which findings of an audit it mends, and what to write instead."""
        return ()

    def choose(self, model: nn.Module, *, packed: bool, tokens: int | None) -> Choice:
        """The variant that automatic choice turns on for this model, or why none.

        `packed`: every call gets `packed_documents`. `tokens`: of one batch, where they are known.
        """
        return Choice(self.name, None, "it is not chosen by itself; ask for it by name")

    def library_remedy(self, model: nn.Module) -> tuple[str, Detachable] | None:
        """What mends its findings on this model in place of a variant, where the library can do it
        with other inputs: one sentence, and what was put on the model. `None` as a rule."""
        return None


class WorkloadFactory(Protocol):
    """Builds a workload and its optimizations in the child process, from plain data."""

    def __call__(self, spec: Mapping[str, object]) -> tuple[Workload, dict[str, Optimization]]:
        """`spec` is JSON-like. Raises `UsageError` for a bad one."""
        ...
