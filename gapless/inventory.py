"""What there is to measure, and whether this machine can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.bench_run import applicable, reason_against
from gapless.factory import with_attached_attention
from harness.clock.gpus import gpu_names
from harness.findings.finding_catalogue import KINDS, foreign_rules
from harness.record.records import Record
from harness.workload import VariantRole
from optimizations.optimization_catalogue import all_optimizations, answers
from scenarios.build_options import BuildOptions
from scenarios.configuration import library_config
from scenarios.scenario_catalogue import SCENARIOS, all_scenarios, get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from harness.workload import Optimization
    from scenarios.scenario_catalogue import Scenario


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
    """Which of the attentions that the optimization offers, where it offers some."""
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
    gpus: tuple[str, ...] = ()
    """Those that can be emulated."""
    findings: tuple[str, ...] = ()
    """Kinds of findings that other packages add."""
    notes: tuple[str, ...] = ()
    """What has nothing to act on here."""


def take_inventory(device: str) -> Inventory:
    """Ask every variant whether it can run on `device`, on a one-layer model of its scenario."""
    scenarios, failed = _entries_of_scenarios()
    return Inventory(
        device=device,
        scenarios=tuple(scenarios.values()),
        variants=tuple(
            entry
            for optimization in all_optimizations().values()
            for entry in _variant_entries(optimization, device, tuple(scenarios))
        ),
        gpus=gpu_names(),
        findings=tuple(plugin.value.kind for plugin in foreign_rules()),
        notes=(*failed, *_notes()),
    )


def _entries_of_scenarios() -> tuple[dict[str, ScenarioEntry], list[str]]:
    """Scenarios by name, and a sentence for each of another package that cannot be built."""
    entries: dict[str, ScenarioEntry] = {}
    failed = []
    for name, scenario in all_scenarios().items():
        try:
            entries[name] = _scenario_entry(scenario)
        except Exception as error:  # whatever a plug-in's configuration holds
            if name in SCENARIOS:
                raise
            failed.append(f"The scenario {name} cannot be built: {error}")
    return entries, failed


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


def _variant_entries(
    optimization: Optimization, device: str, scenarios: Sequence[str]
) -> list[VariantEntry]:
    reasons = {name: reason_against(optimization, get(name)) for name in scenarios}
    scenario = next((name for name in scenarios if reasons[name] is None), None)
    if scenario is None:
        why = next(iter(reasons.values()))
        return _entries(optimization, None, lambda _: f"it applies to no scenario here: {why}")
    options = BuildOptions(device=device, num_layers=1, tokens=64, num_batches=1)
    model = get(scenario).build(with_attached_attention(options)).model
    return [
        entry
        for attention in optimization.attentions or (None,)
        for entry in _backend_entries(optimization, attention, model)
    ]


def _backend_entries(
    optimization: Optimization, attention: str | None, model: nn.Module
) -> list[VariantEntry]:
    made = optimization if attention is None else optimization.using(attention)

    def missing(variant: str) -> str | None:
        try:
            return made.requires(model, variant)
        except Exception as error:  # whatever a plug-in does; the list shows the others
            return f"its check fails with {type(error).__name__}: {error}"

    return _entries(made, attention, missing)


def _entries(
    optimization: Optimization, attention: str | None, missing: Callable[[str], str | None]
) -> list[VariantEntry]:
    return [
        VariantEntry(
            optimization=optimization.name,
            attention=attention,
            variant=variant.name,
            role=variant.role,
            summary=variant.summary,
            missing=missing(variant.name),
        )
        for variant in optimization.variants
    ]


def _notes() -> Iterator[str]:
    """What was installed or entered, and has nothing to act on."""
    known = {*KINDS, *(plugin.value.kind for plugin in foreign_rules())}
    for answer in answers():
        for kind in answer.kinds:
            if kind not in known:
                yield (
                    f"{answer.optimization} answers findings of the kind {kind}, which nothing "
                    f"finds here; the kinds are {', '.join(sorted(known))}."
                )
