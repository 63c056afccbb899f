"""Audits a scenario's training step on the emulated GPU, as one of its arms computes it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.arms import BASELINE, parse_variants, variant_with_role
from gapless.bench_run import variants_of
from gapless.factory import packed_backend
from harness.audit.emulated.emulated_audit import EmulatedAudit, Mode
from harness.audit.failures import as_workload_error
from harness.audit.growth import Sizes, with_growth
from harness.bench.arm_switch import attached, check_requirements
from harness.errors import UsageError
from optimizations import optimization_catalogue as catalogue
from scenarios.build_options import PACKED_ATTENTION
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

    def run(one: Scenario, built: BuildOptions, how: Mode) -> AuditReport:
        return _audit(one, built, arm, steps=steps, warmup=warmup, mode=how, **settings)

    report = run(scenario, options, mode)
    if scale is None:
        return report
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
    optimizations = {
        name: catalogue.create(name, attention=packed_backend(scenario, options))
        for name in variants
    }
    name = ",".join(f"{name}={variant}" for name, variant in variants.items())
    target = f"{scenario.name} ({name})" if name else scenario.name
    audit = EmulatedAudit(target=target, boundary="explicit", steps=steps, skip=warmup, **settings)
    with as_workload_error(target, audit.book), audit:
        audit.record(False)
        workload = scenario.build(msgspec.structs.replace(options, device="cuda"))
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
    return audit.report


def _variants(scenario: Scenario, options: BuildOptions, arm: str | None) -> dict[str, str]:
    """Optimization -> variant: what the arm names, and the baseline of what waits in the scenario.

    Copies of checkpoint inputs make nobody wait in the baseline, which has none of them.
    """
    choices = variants_of()
    names = [name for name in scenario.optimizations if name != "checkpoint-reload"]
    attention = options.attention or scenario.attention
    if attention not in PACKED_ATTENTION and "packed-metadata" in names:
        names.remove("packed-metadata")
    variants = {name: variant_with_role(choices, name, "baseline") for name in names}
    if arm is not None:
        variants |= {} if arm == BASELINE else parse_variants(arm, choices)
    return {name: variants[name] for name in catalogue.NAMES if name in variants}


def best_arm(scenario: Scenario) -> str:
    """An arm with the variant that goes beyond the published one, of each optimization that waits
    in the scenario's baseline. Raises `UsageError` where there is none."""
    choices = variants_of()
    variants = {
        name: variant_with_role(choices, name, "beyond")
        for name in scenario.optimizations
        if name != "checkpoint-reload"
    }
    if not variants:
        raise UsageError(f"Nothing waits in {scenario.name} that an optimization could remove.")
    return ",".join(f"{name}={variant}" for name, variant in variants.items())


def _small_sizes(scale: str, chosen: int) -> tuple[Sizes, ...]:
    few, many = _SMALL_LAYERS
    if scale == "layers":
        return Sizes(few), Sizes(many)
    # A token cannot visit more experts than there are.
    least, most = (max(number, chosen * number // 4) for number in _SMALL_EXPERTS)
    return Sizes(few, least), Sizes(many, least), Sizes(few, most)
