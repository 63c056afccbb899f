"""`gapless.optimize`: turn on the fixes that apply to a model, and say why the others stay off.

Named apart from the function it holds, because importing a submodule called `optimize` would put
the module where `gapless.optimize` stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from gapless.choice import Choice
from harness.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

    from torch import nn

    from harness.workload import Attachment
    from optimizations.packed_metadata import PackedBackend

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


def optimize(
    model: nn.Module,
    choice: str | Mapping[str, str] = "auto",
    *,
    packed: bool = False,
    tokens: int | None = None,
) -> Optimized:
    """Enable what helps this model on its device, and log one line each with the reason.

    `choice="auto"` looks at the model, its implementations, its device and the free memory; a
    mapping `{"moe-routing": "argsort"}` enables just that. `packed`: every call of the model gets
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
        from gapless.automatic import automatic_choices

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


def _asked(model: nn.Module, name: str, variant: str) -> Choice:
    """A choice of the user's, which may put one attention in the place of another."""
    from gapless.automatic import implementation_of
    from optimizations.implementation_switch import pretrained_model

    reason = "asked for"
    if name == "packed-metadata" and pretrained_model(model) is not None:
        in_use = implementation_of(model, "_attn_implementation")
        reason += f"; it takes the place of {in_use} until it is detached"
    return Choice(name, variant, reason)


def _attach(model: nn.Module, choice: Choice) -> Attachment:
    from gapless.automatic import packed_backend_of
    from optimizations import optimization_catalogue as catalogue

    attention: PackedBackend = "sdpa-mask"
    if choice.optimization == "packed-metadata":
        attention = packed_backend_of(model)
    optimization = catalogue.create(choice.optimization, attention=attention)
    attachment = optimization.attach(model)
    try:
        attachment.select(choice.variant or "")
    except BaseException:
        attachment.detach()
        raise
    return attachment
