"""A scenario as data: which model, how it is trained by default, and what applies to it."""

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
    optimizations: tuple[str, ...]
    """Names of the optimizations that apply by default."""
    attention: str
    """Default attention: `sdpa-mask` and `varlen` come from `packed-metadata`."""
    full_tokens: int
    """Tokens per batch at full size."""
