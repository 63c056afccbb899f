"""What there is to measure, and whether this machine can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.bench_run import applicable
from harness.record.records import Record
from harness.workload import VariantRole
from optimizations.optimization_catalogue import NAMES, create
from scenarios.build_options import BuildOptions
from scenarios.configuration import library_config
from scenarios.scenario_catalogue import SCENARIOS

if TYPE_CHECKING:
    from torch import nn

    from harness.workload import Optimization
    from optimizations.packed_metadata import PackedBackend
    from scenarios.scenario_catalogue import Scenario

PACKED_BACKENDS: tuple[PackedBackend, ...] = ("sdpa-mask", "varlen")


class ScenarioEntry(Record, frozen=True, kw_only=True):
    """One scenario."""

    name: str
    model: str
    family: str
    optimizations: tuple[str, ...]
    attention: str
    num_layers: int
    full_tokens: int
    """Tokens in one batch at full size."""


class VariantEntry(Record, frozen=True, kw_only=True):
    """One variant of one optimization."""

    optimization: str
    attention: str | None
    """Backend of packed attention, where the optimization has several."""
    variant: str
    role: VariantRole
    summary: str
    missing: str | None
    """Why it cannot run on this machine, or `None` where it can."""


class Inventory(Record, frozen=True, kw_only=True):
    """Everything that can be named on the command line."""

    device: str
    scenarios: tuple[ScenarioEntry, ...]
    variants: tuple[VariantEntry, ...]


def take_inventory(device: str) -> Inventory:
    """Ask every variant whether it can run on `device`, on a one-layer model of its scenario."""
    return Inventory(
        device=device,
        scenarios=tuple(_scenario_entry(scenario) for scenario in SCENARIOS.values()),
        variants=tuple(entry for name in NAMES for entry in _variant_entries(name, device)),
    )


def _scenario_entry(scenario: Scenario) -> ScenarioEntry:
    return ScenarioEntry(
        name=scenario.name,
        model=scenario.model,
        family=scenario.family,
        optimizations=applicable(scenario),
        attention=scenario.attention,
        num_layers=library_config(scenario.facts).num_hidden_layers,
        full_tokens=scenario.full_tokens,
    )


def _variant_entries(name: str, device: str) -> list[VariantEntry]:
    scenario = next(s for s in SCENARIOS.values() if name in s.optimizations)
    options = BuildOptions(device=device, num_layers=1, tokens=64, num_batches=1)
    model = scenario.build(options).model
    if name != "packed-metadata":
        return _entries(create(name), None, model)
    return [
        entry
        for backend in PACKED_BACKENDS
        for entry in _entries(create(name, attention=backend), backend, model)
    ]


def _entries(
    optimization: Optimization, attention: str | None, model: nn.Module
) -> list[VariantEntry]:
    return [
        VariantEntry(
            optimization=optimization.name,
            attention=attention,
            variant=variant.name,
            role=variant.role,
            summary=variant.summary,
            missing=optimization.requires(model, variant.name),
        )
        for variant in optimization.variants
    ]
