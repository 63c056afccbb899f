"""All scenarios by name. Importing it is cheap: torch is imported by `Scenario.build` only.

Those of other packages, entry points `gapless.scenarios`, come after the ones here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from harness import plugins
from harness.errors import UsageError
from scenarios import models
from scenarios.build_options import BuildOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scenarios.causal_lm import ModelWorkload
    from scenarios.models import ModelSizes

Family = Literal["packed-sft", "moe"]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A workload: a published model on packed rows of real text."""

    name: str
    family: Family
    model: str
    """Published name of the model configuration."""
    sizes: ModelSizes
    attention: str
    """Default attention: the library's, or one that an optimization offers."""
    full_tokens: int
    """Tokens per batch at full size."""
    checkpointing: bool = True

    def build(self, options: BuildOptions | None = None) -> ModelWorkload:
        """The model, its batches and its optimizer on the device.

        Raises `UsageError` for options that cannot be met. Seeds torch's default generators.
        """
        from scenarios.assemble import build_workload

        return build_workload(self, options or BuildOptions())


def _packed_sft(name: str, model: str, sizes: ModelSizes, full_tokens: int) -> Scenario:
    return Scenario(
        name=name,
        family="packed-sft",
        model=model,
        sizes=sizes,
        # The published figures fit the rebuild of a dense mask, not of cu_seqlens.
        attention="sdpa-mask",
        full_tokens=full_tokens,
    )


def _moe(name: str, model: str, sizes: ModelSizes, attention: str) -> Scenario:
    return Scenario(
        name=name,
        family="moe",
        model=model,
        sizes=sizes,
        attention=attention,
        # No batch was published for the routing rows; 2 x 2,048 is that of a later benchmark of
        # the same code on one B200.
        full_tokens=4096,
    )


# 8B, 14B and 32B: recovered from the published extra memory, one buffer of tokens x hidden x 2 B.
# 0.6B and 1B: the 2,048 packed tokens of the published micro-benchmark.
_ALL = (
    _packed_sft("qwen3-0.6b-packed-sft", "Qwen3-0.6B", models.QWEN3_0_6B, 2048),
    _packed_sft("qwen3-8b-packed-sft", "Qwen3-8B", models.QWEN3_8B, 49_152),
    _packed_sft("qwen3-14b-packed-sft", "Qwen3-14B", models.QWEN3_14B, 49_152),
    _packed_sft("qwen3-32b-packed-sft", "Qwen3-32B", models.QWEN3_32B, 24_576),
    _packed_sft("llama3.2-1b-packed-sft", "Llama-3.2-1B", models.LLAMA_3_2_1B, 2048),
    _moe("gpt-oss-20b", "gpt-oss-20b", models.GPT_OSS_20B, "eager"),
    _moe("gpt-oss-120b", "gpt-oss-120b", models.GPT_OSS_120B, "eager"),
    _moe("qwen3-30b-a3b", "Qwen3-30B-A3B", models.QWEN3_30B_A3B, "sdpa"),
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
"""The scenarios of this package by name."""


@cache
def all_scenarios() -> Mapping[str, Scenario]:
    """Every scenario by name. Raises `UsageError` where a plug-in has a name that is taken."""
    found = plugins.load(plugins.SCENARIOS, _checked)
    return MappingProxyType(plugins.merged("scenarios", SCENARIOS, found, lambda one: one.name))


def _checked(value: object) -> Scenario:
    if not isinstance(value, Scenario):
        raise UsageError(f"{value!r} is no scenarios.scenario_catalogue.Scenario")
    return value


def get(name: str) -> Scenario:
    """The scenario of that name; raises `UsageError` that names the nearest ones."""
    known_scenarios = all_scenarios()
    if name in known_scenarios:
        return known_scenarios[name]
    # The start of a name says more than its letters: qwen3-14b is meant by its own name first.
    begun = [known for known in known_scenarios if name and known.startswith(name.lower())]
    alike = difflib.get_close_matches(name.lower(), list(known_scenarios), n=3, cutoff=0.4)
    near = begun or alike
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known_scenarios)}."
    )
    raise UsageError(f"There is no scenario {name!r}; {hint}")
