"""Audits a scenario's training step on the emulated GPU, as one of its arms computes it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.arms import BASELINE, best_variant, parse_variants, variant_with_role
from gapless.bench_run import applicable, variants_of
from gapless.factory import with_attached_attention
from harness.audit.emulated.emulated_audit import EmulatedAudit, Mode
from harness.audit.failures import as_workload_error
from harness.audit.growth import Sizes, with_growth
from harness.bench.arm_switch import attached, check_requirements
from harness.errors import UsageError
from harness.findings.answering import with_answers
from optimizations.optimization_catalogue import all_optimizations, answers, create
from scenarios.configuration import library_config
from scenarios.sizes import experts_per_token, num_experts

if TYPE_CHECKING:
    from harness.record.audit_report import AuditReport
    from scenarios.build_options import BuildOptions
    from scenarios.scenario_catalogue import Scenario

_SMALL_LAYERS = (2, 4)
_SMALL_EXPERTS = (4, 8)
"""Sizes at which growth is looked at: few experts for a few hundred tokens, so that all are hit."""

SCALES = ("layers", "experts")


def audit_scenario(
    scenario: Scenario,
    options: BuildOptions,
    *,
    arm: str | None = None,
    scale: str | None = None,
    steps: int = 1,
    warmup: int = 1,
    mode: Mode = "auto",
    **settings: Any,
) -> AuditReport:
    """Audit one step of `scenario` after `warmup` steps that are not counted.

    `arm` is written as for `gapless bench`; without one every optimization of the scenario is at
    its baseline. `scale` also audits small models of 2 and 4 layers, and for `experts` of 4 and 8
    experts, and says how each site grows. Raises `UsageError` for what the scenario does not have.
    """
    if scale not in (None, *SCALES):
        raise UsageError(f"--scale {scale} is unknown; choose one of {', '.join(SCALES)}.")
    config = library_config(scenario.facts)
    if scale == "experts" and num_experts(config) is None:
        raise UsageError(f"{scenario.model} has no experts to scale; use --scale layers.")

    def run(one: Scenario, built: BuildOptions, how: Mode, **asked: Any) -> AuditReport:
        return _audit(one, built, arm, steps=steps, warmup=warmup, mode=how, **asked)

    report = run(scenario, options, mode, **settings)
    if scale is None:
        return report
    # What is asked of the clock, such as a file for the timeline, is about the size asked for.
    counting = {name: value for name, value in settings.items() if name != "clock"}
    small = {
        sizes: run(
            scenario,
            msgspec.structs.replace(
                options,
                num_layers=sizes.layers,
                num_experts=sizes.experts,
                fit="narrow",
                tokens=None,
            ),
            "values",
            **counting,
        )
        for sizes in _small_sizes(scale, experts_per_token(config) or 1)
    }
    return with_growth(report, small)


def _audit(
    scenario: Scenario,
    options: BuildOptions,
    arm: str | None,
    *,
    steps: int,
    warmup: int,
    **settings: Any,
) -> AuditReport:
    variants = _variants(scenario, options, arm)
    attention = options.attention or scenario.attention
    optimizations = {name: create(name, attention=attention) for name in variants}
    name = ",".join(f"{name}={variant}" for name, variant in variants.items())
    target = f"{scenario.name} ({name})" if name else scenario.name
    audit = EmulatedAudit(target=target, boundary="explicit", steps=steps, skip=warmup, **settings)
    with as_workload_error(target, audit.classifier), audit:
        audit.record(False)
        on_device = msgspec.structs.replace(options, device="cuda")
        workload = scenario.build(with_attached_attention(on_device))
        chosen = {"arm": variants}
        check_requirements(chosen, optimizations, workload.model)
        with attached(chosen, optimizations, workload.model) as switch:
            switch.select("arm")
            batches = itertools.count()

            def step() -> None:
                workload.select_batch(next(batches))
                workload.forward()
                workload.backward()
                workload.optimizer_step()

            audit.run_steps(step)
    return with_answers(audit.report, answers())


def _variants(scenario: Scenario, options: BuildOptions, arm: str | None) -> dict[str, str]:
    """Optimization -> variant: the baseline of what waits here, and what the arm names."""
    choices = variants_of()
    names = _waiting(scenario, options.attention or scenario.attention)
    variants = {name: variant_with_role(choices, name, "baseline") for name in names}
    if arm is not None:
        variants |= {} if arm == BASELINE else parse_variants(arm, choices)
    return {name: variants[name] for name in choices if name in variants}


def _waiting(scenario: Scenario, attention: str) -> tuple[str, ...]:
    """The optimizations whose baseline makes the host wait in this scenario with this attention."""
    known = all_optimizations()
    return tuple(
        name
        for name in applicable(scenario)
        if known[name].removes_syncs
        and (not known[name].attentions or attention in known[name].attentions)
    )


def best_arm(scenario: Scenario) -> str:
    """An arm with the best variant of each optimization that waits in the scenario's baseline.

    Raises `UsageError` where there is none.
    """
    choices = variants_of()
    best = {name: best_variant(choices, name) for name in _waiting(scenario, scenario.attention)}
    arm = ",".join(f"{name}={variant}" for name, variant in best.items() if variant is not None)
    if not arm:
        raise UsageError(f"Nothing waits in {scenario.name} that an optimization could remove.")
    return arm


def _small_sizes(scale: str, chosen: int) -> tuple[Sizes, ...]:
    few, many = _SMALL_LAYERS
    if scale == "layers":
        return Sizes(few), Sizes(many)
    # A token cannot visit more experts than there are.
    least, most = (max(number, chosen * number // 4) for number in _SMALL_EXPERTS)
    return Sizes(few, least), Sizes(many, least), Sizes(few, most)
