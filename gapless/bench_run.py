"""Makes the plan of one run, carries it out and keeps its record."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gapless import factory
from gapless.arms import Choices, parse_arms
from harness.bench.arm_switch import baseline_variant
from harness.bench.plan import BenchPlan, with_a_a
from harness.errors import StoreError
from optimizations.optimization_catalogue import all_optimizations, answers
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import PreTrainedModel

    from harness.bench.child_events import Progress
    from harness.bench.interrupts import Interrupts
    from harness.record.attachments import Attachments
    from harness.record.records import Arm, RunRecord, Sample
    from harness.workload import Optimization, Variant
    from scenarios.scenario_catalogue import Scenario

DEFAULT_SECONDS = 60.0
DEFAULT_PRECISION = 0.01
SYNC_PROBE = "gapless.sync_counters:EmulatedSyncProbe"


def check_store(root: str) -> None:
    """Raise `StoreError` where a local store cannot be written, before time goes into a run."""
    if "://" in root:
        return
    path = Path(root).absolute()
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise StoreError(f"The store {root} cannot be written: {nearest} is a file; name another.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(f"The store {root} cannot be written: {nearest} refuses; name another.")


def variants_of(names: Sequence[str] | None = None) -> dict[str, tuple[Variant, ...]]:
    """The variants of these optimizations, or of all, in the order in which fixes are added."""
    return {
        name: optimization.variants
        for name, optimization in all_optimizations().items()
        if names is None or name in names
    }


@cache
def applicable(scenario: Scenario) -> tuple[str, ...]:
    """Optimizations that the scenario's model can be compared with, in the order of fixes."""
    return tuple(
        name
        for name, optimization in all_optimizations().items()
        if reason_against(optimization, scenario) is None
    )


def reason_against(optimization: Optimization, scenario: Scenario) -> str | None:
    """Why the scenario's model cannot have the baseline of an optimization, without which no arm
    can be compared; `None` if it can."""
    model = _shapes(scenario)
    try:
        return optimization.requires(model, baseline_variant(optimization))
    except Exception as error:  # a plug-in's, beside which the others go on
        return f"its check fails with {type(error).__name__}: {error}"


@cache
def _shapes(scenario: Scenario) -> PreTrainedModel:
    return scenario.shapes()


def default_device() -> str:
    """`cuda` where torch sees one, else `cpu`; imports torch."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def make_plan(
    scenario: Scenario,
    arms: Sequence[Arm],
    options: BuildOptions,
    **limits: Any,
) -> BenchPlan:
    """The plan that times these arms on this scenario, the noise floor among them.

    `options.device` names the device as the user does; `limits` are fields of `BenchPlan`.
    """
    known = all_optimizations()
    toggled = tuple(name for name in known if any(name in arm.variants for arm in arms))
    device = options.device
    if device.startswith("emulated:"):
        # Code on an emulated GPU sees a CUDA device.
        options = msgspec.structs.replace(options, device="cuda")
    if device == "cpu":
        # A CPU makes nobody wait: what a GPU would be waited for is counted on an emulated one.
        limits = {"sync_probe": SYNC_PROBE, **limits}
    return BenchPlan(
        factory=factory.PATH,
        spec=factory.make_spec(scenario, options, toggled),
        scenario=scenario.name,
        outline=factory.outline(scenario, options),
        device=device,
        arms=with_a_a(tuple(arms)),
        saved_work={name: work for name in toggled if (work := known[name].saved_work)},
        answers=answers(),
        **limits,
    )


def carry_out(
    plan: BenchPlan,
    *,
    store: str | None,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
) -> RunRecord:
    """Run a plan in a child process and write its record, also of a run that failed.

    `store` is a folder or an fsspec URL; `None` keeps nothing. Raises `UsageError` where the plan
    cannot run here and `StoreError` where the record cannot be kept.
    """
    from harness.bench.runner import run_plan
    from harness.record.attachments import Attachments

    kept = Attachments()
    record, samples = run_plan(
        plan, on_progress=on_progress, interrupts=interrupts, attachments=kept
    )
    if store is None:
        return record
    return keep_run(store, record, samples, kept)


def keep_run(
    store: str, record: RunRecord, samples: Sequence[Sample], kept: Attachments
) -> RunRecord:
    """Write a run and return its record as stored; without timelines where the store takes it only
    so, since they are most of its bytes and the figures took minutes. Raises `StoreError`."""
    from harness.record.store import Store

    target = Store(store)
    try:
        return target.write(record, samples, audits=kept.audits, traces=kept.traces)
    except StoreError:
        if not kept.traces:
            raise
    note = "The store refused the run with its timelines, and took it without them."
    without = msgspec.structs.replace(record, notes=(*record.notes, note))
    return target.write(without, samples, audits=kept.audits)


def bench(
    scenario: str,
    arms: Sequence[str],
    *,
    seconds: float = DEFAULT_SECONDS,
    precision: float = DEFAULT_PRECISION,
    store: str | None = None,
    **options: Any,
) -> RunRecord:
    """Compare arms on one scenario and return the record; `store` also keeps it.

        record = gapless.bench("qwen3-14b-packed-sft", ["NAME=VARIANT"], seconds=30)

    `gapless list` shows the names. `options` are those of a scenario, such as `tokens=512`,
    `num_layers=2`, `documents=4` or `device="cuda"`. Raises `UsageError` for a name or an option
    that does not exist, with those that do.
    """
    choices: Choices = variants_of()
    plan = make_plan(
        get(scenario),
        parse_arms(arms, choices),
        BuildOptions.from_mapping({"device": default_device(), **options}),
        budget_s=seconds,
        precision=precision,
    )
    return carry_out(plan, store=store)
