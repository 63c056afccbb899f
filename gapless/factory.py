"""Builds a scenario and its optimizations from plain data, in the process that measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gapless.arms import best_variant
from harness.errors import UsageError
from harness.record.records import ScenarioRecord
from harness.workload import PACKED_ATTENTION
from optimizations.optimization_catalogue import attention_owners, create
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import Scenario, all_scenarios, get

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.workload import Optimization, Workload

PATH = "gapless.factory:build"
"""How a bench plan names `build`."""

LIBRARY_ATTENTION = "sdpa"
"""What takes the place of attention whose optimization no arm toggles."""


class FactorySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to build, as it crosses the process boundary."""

    scenario: str
    configured: Scenario | None = None
    """The scenario itself, where it is none of the catalogue."""
    options: BuildOptions
    optimizations: tuple[str, ...]


def make_spec(
    scenario: Scenario, options: BuildOptions, optimizations: tuple[str, ...]
) -> dict[str, Any]:
    """JSON-like data for `build`.

    Attention that an optimization offers goes with it: without it a scenario that has one by
    default falls back on the library's, with it one that has another takes the usual one of it.
    Raises `UsageError` where the attention asked for contradicts that.
    """
    attention = options.attention or scenario.attention
    owners = attention_owners()
    offered = [name for name, owner in owners.items() if owner in optimizations]
    if attention not in offered and (offered or attention in owners):
        if options.attention is not None:
            raise UsageError(_attention_conflict(attention, offered, owners))
        attention = offered[0] if offered else LIBRARY_ATTENTION
        options = msgspec.structs.replace(options, attention=attention)
    spec = FactorySpec(
        scenario=scenario.name,
        configured=None if all_scenarios().get(scenario.name) == scenario else scenario,
        options=with_attached_attention(options),
        optimizations=optimizations,
    )
    built: dict[str, Any] = msgspec.to_builtins(spec)
    return built


def with_attached_attention(options: BuildOptions) -> BuildOptions:
    """Options under which a model is built with the library's attention where the one asked for
    comes with an optimization, of gapless or of another package."""
    attached = tuple(attention_owners())
    if attached == PACKED_ATTENTION:
        return options
    return msgspec.structs.replace(options, attached_attention=attached)


def _attention_conflict(attention: str, offered: list[str], owners: Mapping[str, str]) -> str:
    if attention not in owners:
        toggled = owners[offered[0]]
        return (
            f"--attention {attention} is the library's, but an arm toggles {toggled}; "
            f"choose {' or '.join(offered)}, or leave --attention out."
        )
    owner = owners[attention]
    choices = {owner: create(owner).variants}
    variant = best_variant(choices, owner) or choices[owner][-1].name
    return (
        f"--attention {attention} belongs to {owner}, which no arm toggles; "
        f"add --arm {owner}={variant} or leave --attention out."
    )


def outline(scenario: Scenario, options: BuildOptions) -> ScenarioRecord:
    """What is known before the build, for the record of a run whose build fails."""
    return ScenarioRecord(
        name=scenario.name,
        family=scenario.family,
        model=scenario.model,
        fit=options.fit,
        dtype=options.dtype or "unknown",
        attention=options.attention or scenario.attention,
        checkpointing=options.checkpointing is not False,
        weights=options.weights,
        adapter=options.adapter,
        seed=options.seed,
        config={},
    )


def build(spec: Mapping[str, object]) -> tuple[Workload, dict[str, Optimization]]:
    """The workload and the optimizations that `spec` names. Raises `UsageError` for a bad one."""
    try:
        wanted = msgspec.convert(dict(spec), FactorySpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"The workload cannot be built from this description: {error}.") from error
    scenario = wanted.configured or get(wanted.scenario)
    attention = wanted.options.attention or scenario.attention
    made = {name: create(name, attention=attention) for name in wanted.optimizations}
    return scenario.build(wanted.options), made
