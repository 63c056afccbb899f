"""Builds a scenario and its optimizations from plain data, in the process that measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness.errors import UsageError
from harness.record.records import ScenarioRecord
from optimizations import optimization_catalogue as catalogue
from scenarios.build_options import PACKED_ATTENTION, BuildOptions
from scenarios.scenario_catalogue import SCENARIOS, Scenario, get

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.workload import Optimization, Workload
    from optimizations.packed_metadata import PackedBackend

PATH = "gapless.factory:build"
"""How a bench plan names `build`."""

PACKED_METADATA = "packed-metadata"


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

    The attention backends of `packed-metadata` go with it: without it a scenario that has one by
    default falls back on the library's, with it one that has the library's takes `sdpa-mask`.
    Raises `UsageError` where the attention asked for contradicts that.
    """
    attention = options.attention or scenario.attention
    is_packed = attention in PACKED_ATTENTION
    toggles_packed = PACKED_METADATA in optimizations
    if is_packed != toggles_packed:
        if options.attention is not None:
            raise UsageError(_attention_conflict(attention, toggles_packed))
        fallback = "sdpa-mask" if toggles_packed else "sdpa"
        options = msgspec.structs.replace(options, attention=fallback)
    spec = FactorySpec(
        scenario=scenario.name,
        configured=None if SCENARIOS.get(scenario.name) == scenario else scenario,
        options=options,
        optimizations=optimizations,
    )
    built: dict[str, Any] = msgspec.to_builtins(spec)
    return built


def _attention_conflict(attention: str, toggles_packed: bool) -> str:
    if toggles_packed:
        return (
            f"--attention {attention} is the library's, but an arm toggles {PACKED_METADATA}; "
            f"choose {' or '.join(PACKED_ATTENTION)}, or leave --attention out."
        )
    return (
        f"--attention {attention} belongs to {PACKED_METADATA}, which no arm toggles; "
        f"add --arm {PACKED_METADATA}=cached or leave --attention out."
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
    backend = packed_backend(scenario, wanted.options)
    made = {name: catalogue.create(name, attention=backend) for name in wanted.optimizations}
    return scenario.build(wanted.options), made


def packed_backend(scenario: Scenario, options: BuildOptions) -> PackedBackend:
    """The backend of packed attention: the attention asked for, where it is one."""
    attention = options.attention or scenario.attention
    return "varlen" if attention == "varlen" else "sdpa-mask"
