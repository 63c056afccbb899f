"""`gapless.optimize`: turn on the fixes that apply to a model, and say why the others stay off.

Named apart from the function it holds, because importing a submodule called `optimize` would put
the module where `gapless.optimize` stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from harness.errors import UsageError
from harness.workload import Choice
from optimizations.optimization_catalogue import all_optimizations, create

if TYPE_CHECKING:
    from types import TracebackType

    from torch import nn

    from harness.workload import Attachment

logger = logging.getLogger("gapless")


class Optimized:
    """The optimizations that are on for one model. `detach` leaves the model as it was before."""

    def __init__(self, choices: tuple[Choice, ...], attachments: tuple[Attachment, ...]) -> None:
        self.choices = choices
        self._attachments = attachments

    def detach(self) -> None:
        """Switch everything off again; calling it twice is harmless."""
        attachments, self._attachments = self._attachments, ()
        for attachment in reversed(attachments):
            attachment.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()

    def __str__(self) -> str:
        return "\n".join(map(str, self.choices))

    def __repr__(self) -> str:
        return f"<gapless.Optimized: {'; '.join(map(str, self.choices)) or 'nothing'}>"


def optimize(
    model: nn.Module,
    choice: str | Mapping[str, str] = "auto",
    *,
    packed: bool = False,
    tokens: int | None = None,
) -> Optimized:
    """Enable what helps this model on its device, and log one line each with the reason.

    `choice="auto"` looks at the model, its implementations, its device and the free memory; a
    mapping `{"name": "variant"}` enables just that. `packed`: every call of the model gets
    `packed_documents=PackedDocuments(...)`. `tokens`: tokens in one batch, by which automatic
    choice tells whether checkpoint inputs are worth moving to the host.

    Works on transformers models, also inside a wrapper such as peft's. Raises `UsageError` for an
    unknown name or variant, and for one of a mapping that cannot run here.
    """
    from torch import nn

    if not isinstance(model, nn.Module):
        raise UsageError(
            f"optimize takes a torch.nn.Module, not {type(model).__name__}; give the model itself."
        )
    if choice == "auto":
        choices = automatic_choices(model, packed=packed, tokens=tokens)
    elif not isinstance(choice, Mapping):
        raise UsageError(
            f'optimize takes "auto" or {{"optimization": "variant"}}, not {choice!r}; run '
            "`gapless list` for the names."
        )
    else:
        choices = tuple(_asked(model, name, variant) for name, variant in choice.items())
    attachments: list[Attachment] = []
    try:
        for one in choices:
            logger.info("%s", one)
            if one.variant is not None:
                attachments.append(_attach(model, one))
    except BaseException:
        for attachment in reversed(attachments):
            attachment.detach()
        raise
    return Optimized(choices, tuple(attachments))


def automatic_choices(model: nn.Module, *, packed: bool, tokens: int | None) -> tuple[Choice, ...]:
    """One choice for each optimization. Raises `UsageError` for a model without parameters."""
    from optimizations.implementation_switch import model_device

    model_device(model)
    return tuple(
        optimization.choose(model, packed=packed, tokens=tokens)
        for optimization in all_optimizations().values()
    )


def _asked(model: nn.Module, name: str, variant: str) -> Choice:
    """A choice of the user's, which may put one attention in the place of another."""
    from optimizations.implementation_switch import implementation_of, pretrained_model

    reason = "asked for"
    if create(name).attentions and pretrained_model(model) is not None:
        in_use = implementation_of(model, "attention")
        reason += f"; it takes the place of {in_use} until it is detached"
    return Choice(name, variant, reason)


def _attach(model: nn.Module, choice: Choice) -> Attachment:
    attachment = create(choice.optimization).suited_to(model).attach(model)
    try:
        attachment.select(choice.variant or "")
    except BaseException:
        attachment.detach()
        raise
    return attachment
