"""All scenarios by name. Importing it is cheap: torch is imported by `Scenario.build` only.

Those of other packages, entry points `gapless.scenarios`, come after the ones here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness import plugins
from harness.errors import UsageError
from scenarios.build_options import BuildOptions
from scenarios.configuration import shipped
from scenarios.scenario_facts import ScenarioFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

    from scenarios.causal_lm import ModelWorkload


@dataclass(frozen=True, kw_only=True)
class Scenario(ScenarioFacts):
    """A workload: a published model on packed rows of real text."""

    def build(self, options: BuildOptions | None = None) -> ModelWorkload:
        """The model, its batches and its optimizer on the device.

        Raises `UsageError` for options that cannot be met. Seeds torch's default generators.
        """
        from scenarios.assemble import build_workload

        return build_workload(self, options or BuildOptions())

    def shapes(self) -> PreTrainedModel:
        """The narrow model, its weights not set, to ask which optimizations apply to it."""
        from scenarios.assemble import build_shapes

        return build_shapes(self)


def packed_sft(name: str, model: str, full_tokens: int) -> Scenario:
    """Fine-tuning of a dense model that ships in `scenarios/configs/`."""
    return Scenario(
        name=name,
        family="packed-sft",
        model=model,
        facts=shipped(model),
        # The published figures fit the rebuild of a dense mask, not of cu_seqlens.
        attention="sdpa-mask",
        full_tokens=full_tokens,
    )


def moe(name: str, model: str, attention: str = "sdpa") -> Scenario:
    """Training of a model with experts that ships in `scenarios/configs/`."""
    return Scenario(
        name=name,
        family="moe",
        model=model,
        facts=shipped(model),
        attention=attention,
        # No batch was published for the routing rows; 2 x 2,048 is that of a later benchmark of
        # the same code on one B200.
        full_tokens=4096,
    )


# 8B, 14B and 32B of Qwen3: recovered from the published extra memory, one buffer of tokens x hidden
# x 2 B. Others: the 2,048 packed tokens of the published micro-benchmark.
_ALL = (
    packed_sft("qwen3-0.6b-packed-sft", "Qwen3-0.6B", 2048),
    packed_sft("qwen3-8b-packed-sft", "Qwen3-8B", 49_152),
    packed_sft("qwen3-14b-packed-sft", "Qwen3-14B", 49_152),
    packed_sft("qwen3-32b-packed-sft", "Qwen3-32B", 24_576),
    packed_sft("llama3.2-1b-packed-sft", "Llama-3.2-1B", 2048),
    packed_sft("llama3.1-8b-packed-sft", "Llama-3.1-8B", 2048),
    packed_sft("mistral-7b-packed-sft", "Mistral-7B", 2048),
    packed_sft("gemma3-1b-packed-sft", "Gemma-3-1B", 2048),
    moe("gpt-oss-20b", "gpt-oss-20b", "eager"),
    moe("gpt-oss-120b", "gpt-oss-120b", "eager"),
    moe("qwen3-30b-a3b", "Qwen3-30B-A3B"),
    moe("mixtral-8x7b", "Mixtral-8x7B"),
    moe("olmoe-1b-7b", "OLMoE-1B-7B"),
    moe("deepseek-v3", "DeepSeek-V3"),
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
