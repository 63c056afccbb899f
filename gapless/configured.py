"""A scenario by name, or one made of a model's own configuration."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gapless.bench_run import applicable
from harness.errors import UsageError
from harness.workload import PACKED_ATTENTION
from optimizations.optimization_catalogue import attention_owners
from scenarios.build import stock_attention
from scenarios.configuration import library_config, read_facts
from scenarios.scenario_catalogue import Scenario, all_scenarios, get
from scenarios.sizes import num_experts

_TOKENS = 2048


def choose_scenario(name: str | None, config: str | None) -> Scenario:
    """The scenario of that name, or of the configuration at `config`: a JSON file, a folder or a
    hub id. Raises `UsageError` for both, for neither, and for what is no configuration."""
    if name is not None and config is not None:
        raise UsageError(
            f"The scenario {name} has a configuration of its own; leave out the name or --config."
        )
    if config is not None:
        return configured(config)
    if name is None:
        raise UsageError("Name what to build: a scenario of `gapless list`, or --config FILE.")
    return get(name)


def configured(source: str) -> Scenario:
    """The model of a configuration on packed rows, with packed attention where that applies to it.

    Rows hold 2,048 tokens at full size, or the model's most positions where those are fewer.
    """
    facts = read_facts(source)
    config = library_config(facts)
    name = _name(source)
    stock = stock_attention(config)
    scenario = Scenario(
        name=name,
        family="packed-sft" if num_experts(config) is None else "moe",
        model=name,
        facts=facts,
        attention=stock,
        full_tokens=min(_TOKENS, getattr(config, "max_position_embeddings", None) or _TOKENS),
    )
    # As in the catalogue: packed attention is what dense models are fine-tuned with.
    packed = PACKED_ATTENTION[0]
    offered = attention_owners().get(packed) in applicable(scenario)
    fits = scenario.family == "packed-sft" and offered
    return replace(scenario, attention=packed) if fits else scenario


def _name(source: str) -> str:
    """The name of the file, or of the folder or repository it lies in."""
    path = Path(source)
    place = path.resolve() if path.exists() else path
    words = place.parent.name if place.name == "config.json" else place.name.removesuffix(".json")
    name = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.") or "model"
    # A published claim belongs to the scenario of that name, and to no other model.
    return f"{name}-config" if name in all_scenarios() else name
