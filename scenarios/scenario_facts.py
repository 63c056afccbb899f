"""A scenario as data: which model, and how it is trained by default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["packed-sft", "moe"]


@dataclass(frozen=True, kw_only=True)
class ScenarioFacts:
    """What a scenario is made of."""

    name: str
    family: Family
    model: str
    """Published name of the model configuration."""
    facts: dict[str, Any] = field(hash=False)
    """The model's own `config.json`."""
    attention: str
    """Default attention: the library's, or one that an optimization offers."""
    full_tokens: int
    """Tokens per batch at full size."""
