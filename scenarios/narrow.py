"""How `--fit narrow` shrinks a model: a table of widths, the same on every machine.

What coordination depends on stays as published: layers, experts, experts per token, query heads
per key-value head, the pattern of windows, documents in a row, checkpointing. Only widths shrink:
hidden size, MLP, head size, vocabulary, tokens, and the window in step with the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenarios.build_options import Purpose
    from scenarios.models import ModelSizes


@dataclass(frozen=True, kw_only=True)
class Widths:
    """What one narrow build uses in place of the published widths."""

    tokens: int
    documents: int
    hidden_size: int
    intermediate_size: int
    head_dim: int = 16
    vocab_size: int = 512
    """Holds all bytes and the special tokens, so byte tokens need no folding."""
    sliding_window: int = 16
    """Half a mean document, so that windows still cut documents short."""


# Attention over T x T takes most of a narrow CPU step, so tokens fall as layers x heads rise:
# each row is chosen for a step of 0.2 to 0.6 s on two cores.
_BALANCED: Mapping[str, Widths] = MappingProxyType(
    {
        "Qwen3-0.6B": Widths(tokens=1024, documents=32, hidden_size=64, intermediate_size=128),
        "Llama-3.2-1B": Widths(tokens=1024, documents=32, hidden_size=64, intermediate_size=128),
        "Qwen3-8B": Widths(tokens=512, documents=24, hidden_size=64, intermediate_size=128),
        "Qwen3-14B": Widths(tokens=512, documents=24, hidden_size=64, intermediate_size=128),
        "Qwen3-32B": Widths(tokens=256, documents=16, hidden_size=64, intermediate_size=128),
        "gpt-oss-20b": Widths(tokens=256, documents=8, hidden_size=64, intermediate_size=32),
        "gpt-oss-120b": Widths(tokens=192, documents=8, hidden_size=32, intermediate_size=16),
        "Qwen3-30B-A3B": Widths(tokens=128, documents=8, hidden_size=32, intermediate_size=16),
    }
)


def widths_for(model: str, purpose: Purpose) -> Widths:
    """The narrow widths of a published model."""
    balanced = _BALANCED[model]
    if purpose == "balanced":
        return balanced
    # A layer input is tokens x hidden. Widening it costs linear time and more tokens quadratic,
    # so the copy's share of the step is largest with few tokens and a wide hidden size.
    return replace(balanced, tokens=256, documents=8, hidden_size=1024, intermediate_size=32)


def narrow_sizes(sizes: ModelSizes, widths: Widths) -> ModelSizes:
    """`sizes` with the widths of `widths` and one key-value head per group of query heads."""
    return replace(
        sizes,
        hidden_size=widths.hidden_size,
        intermediate_size=widths.intermediate_size,
        num_heads=sizes.num_heads // sizes.num_kv_heads,
        num_kv_heads=1,
        head_dim=widths.head_dim,
        vocab_size=widths.vocab_size,
        moe_intermediate_size=(
            None if sizes.moe_intermediate_size is None else widths.intermediate_size
        ),
        sliding_window=None if sizes.sliding_window is None else widths.sliding_window,
    )


def changed_sizes(real: ModelSizes, as_run: ModelSizes) -> dict[str, tuple[int, int]]:
    """Every integer size that differs: name -> (real, as run)."""
    before, after = real.describe(), as_run.describe()
    changes: dict[str, tuple[int, int]] = {}
    for name, value in before.items():
        other = after.get(name)
        if isinstance(value, int) and isinstance(other, int) and value != other:
            changes[name] = (value, other)
    return changes
