"""What a user may choose about a scenario, as one JSON-able value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Fit = Literal["narrow", "full"]
Purpose = Literal["balanced", "activations"]
Adapter = Literal["none", "lora"]
DtypeName = Literal["float32", "bfloat16"]

RANDOM = "random"
"""Weights drawn from the library's own initialisation."""

Positive = Annotated[int, msgspec.Meta(ge=1)]


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to build a scenario; `None` leaves the choice to the scenario."""

    device: str = "cpu"
    fit: Fit = "narrow"
    purpose: Purpose = "balanced"
    """Which narrow widths: `balanced`, or `activations` with wide layer inputs and little else, so
    that copying them is a share of the step as large as a CPU allows."""
    tokens: Annotated[int, msgspec.Meta(ge=8)] | None = None
    """Tokens in one batch, padding included."""
    documents: Positive | None = None
    """Documents wanted in one batch: longer ones are cut until about so many fit."""
    num_batches: Positive = 4
    data: str | None = None
    """A .jsonl, .parquet or .txt file; `None` is the sample that ships with the project."""
    tokenizer: str | None = None
    """Folder of a tokenizer, or `bytes`; `None` is that of the weights, else bytes."""
    weights: str = RANDOM
    """`random`, a folder, or a hub id such as `Qwen/Qwen3-0.6B`."""
    attention: str | None = None
    """`sdpa-mask`, `varlen`, or a name the library knows, such as `eager` or `sdpa`."""
    attached_attention: tuple[str, ...] | None = None
    """Attention that comes with an optimization when it is attached; until then the model has the
    library's. `None` is that over packed documents."""
    checkpointing: bool | None = None
    """Recompute each layer in backward; `None` does so where the model can."""
    dtype: DtypeName | None = None
    adapter: Adapter = "none"
    num_layers: Positive | None = None
    hidden_size: Positive | None = None
    num_experts: Positive | None = None
    """Experts of each layer, for models that have some; not fewer than a token visits."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0)] = 1e-5
    loss_chunk_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Tokens whose logits exist at once; 0 lets the library compute all of them together."""
    seed: int = 0

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> BuildOptions:
        """Options from JSON-like data; raises `UsageError` that names the field."""
        try:
            return msgspec.convert(dict(values), cls)
        except msgspec.ValidationError as error:
            # msgspec writes "Expected `int` >= 1 - at `$.tokens`".
            what, _, field = str(error).partition(" - at `$.")
            given = f" {field[:-1]}={values[field[:-1]]!r}" if field[:-1] in values else "s"
            names = ", ".join(cls.__struct_fields__)
            raise UsageError(
                f"The scenario option{given} cannot be used: {what}; the options are {names}."
            ) from error
