"""`gapless audit --fix`: audit, turn on the optimizations that match the findings, audit again."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from harness.audit.baseline import identity_of
from harness.audit.report import AuditReport
from harness.errors import UsageError
from harness.records import Record
from harness.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

    from gapless.optimizing import Choice, Optimized
    from harness.audit.report import Site


class LossParity(Record, frozen=True, kw_only=True):
    """The losses of the model's calls in both audits, warm-up included."""

    num_losses: int
    largest_relative_difference: float | None
    """`None` where no call gave a loss with values."""


class FixResult(Record, frozen=True, kw_only=True):
    """Both audits side by side."""

    before: AuditReport
    after: AuditReport
    fixes: tuple[str, ...]
    """What was turned on, or why it was not, one sentence each."""
    parity: LossParity


@dataclass
class Run:
    """What one audited run told beside its report."""

    losses: list[torch.Tensor] = field(default_factory=list)
    """Of each call of a model, where it has values."""
    choices: list[Choice] = field(default_factory=list)


def audit_and_fix(audit: Callable[[], AuditReport], *, seed: int = 0) -> FixResult:
    """Run `audit` twice, the second time with the optimizations that its findings name.

    Both runs start from the same seed, so that they make the same model and batch. Raises
    `UsageError` where no finding has an optimization.
    """
    import torch

    torch.manual_seed(seed)
    with watched({}) as plain:
        before = audit()
    wanted = wanted_fixes(before)
    if not wanted:
        raise UsageError(
            f"None of the {len(before.findings)} findings of {before.target} has an optimization "
            "that --fix could turn on; audit without --fix for what to write instead."
        )
    torch.manual_seed(seed)
    with watched(wanted) as fixed:
        after = audit()
    said = tuple(dict.fromkeys(str(choice) for choice in fixed.choices))
    return FixResult(
        before=before,
        after=after,
        fixes=said or ("no model of transformers was called",),
        parity=_parity(plain.losses, fixed.losses),
    )


def audit_arms(audit: Callable[[str | None], AuditReport], arm: str, *, seed: int = 0) -> FixResult:
    """The same for a scenario: `audit` takes an arm, `None` for the baseline."""
    import torch

    reports, runs = [], []
    for variants in (None, arm):
        torch.manual_seed(seed)
        with watched({}) as run:
            reports.append(audit(variants))
        runs.append(run)
    return FixResult(
        before=reports[0],
        after=reports[1],
        fixes=tuple(arm.split(",")),
        parity=_parity(runs[0].losses, runs[1].losses),
    )


def wanted_fixes(report: AuditReport) -> dict[str, str]:
    """Optimization -> variant, as the findings name them."""
    named = [f.optimization.partition("=") for f in report.findings if f.optimization]
    return {name: variant for name, _, variant in reversed(named)}


@contextmanager
def watched(wanted: dict[str, str]) -> Iterator[Run]:
    """Turn `wanted` on for each transformers model when it is first called, and keep its losses."""
    from torch.nn.modules import module as modules

    run, seen = Run(), set[int]()
    roots: list[nn.Module] = []
    attached: list[Optimized] = []

    def before_call(module: nn.Module, _args: Any) -> None:
        if id(module) in seen:
            return
        roots.append(module)
        seen.update(id(part) for part in module.modules())
        if wanted:
            attached.extend(_turn_on(module, wanted, run))

    def after_call(module: nn.Module, _args: Any, output: Any) -> None:
        loss = output.get("loss") if isinstance(output, dict) else None
        if loss is None or not any(module is root for root in roots):
            return
        # The emulated device's values are on the host: to look at them makes nobody wait.
        value = getattr(loss, "host_value", loss)
        if value is not None:
            run.losses.append(value.detach().clone())

    hooks = (
        modules.register_module_forward_pre_hook(before_call),
        modules.register_module_forward_hook(after_call),
    )
    try:
        yield run
    finally:
        for hook in hooks:
            hook.remove()
        for optimized in reversed(attached):
            optimized.detach()


def _turn_on(module: nn.Module, wanted: dict[str, str], run: Run) -> Iterator[Optimized]:
    from gapless.automatic import automatic_choices
    from gapless.optimizing import optimize
    from optimizations.implementation_switch import pretrained_model

    if pretrained_model(module) is None:
        return
    for choice in automatic_choices(module, packed=False, tokens=None):
        if choice.optimization not in wanted:
            continue
        run.choices.append(choice)
        if choice.variant is not None:
            yield optimize(module, {choice.optimization: choice.variant})


def _parity(before: list[torch.Tensor], after: list[torch.Tensor]) -> LossParity:
    if not before or len(before) != len(after):
        return LossParity(num_losses=0, largest_relative_difference=None)
    pairs = [(float(a), float(b)) for a, b in zip(after, before, strict=True)]
    differences = [abs(a - b) / max(abs(b), 1e-30) for a, b in pairs]
    return LossParity(num_losses=len(before), largest_relative_difference=max(differences))


def fix_table(result: FixResult) -> Table:
    """Syncs per step before and after, one row a site, dearest first, with totals and notes."""
    counts: dict[Any, list[float]] = {}
    places: dict[Any, str] = {}
    for column, report in enumerate((result.before, result.after)):
        for site in report.sites:
            key = identity_of(site)
            counts.setdefault(key, [0.0, 0.0])[column] += _waits(site)
            places.setdefault(key, _place(site))
    rows = sorted(counts.items(), key=lambda item: -item[1][0])
    totals = ("all", *(f"{r.syncs_per_step or 0:g}" for r in (result.before, result.after)))
    parity = result.parity
    said = (
        "Parity: no loss to compare."
        if parity.largest_relative_difference is None
        else f"Parity: {parity.num_losses} losses differ by at most "
        f"{parity.largest_relative_difference:.1e} relative."
    )
    return Table(
        columns=("Place", "Syncs before", "Syncs after"),
        rows=(*((places[k], f"{b:g}", f"{a:g}") for k, (b, a) in rows), totals),
        title=f"{result.before.target} on {result.before.device}, per step",
        notes=(*result.fixes, said, *_modelled(result)),
    )


def _modelled(result: FixResult) -> Iterator[str]:
    before, after = result.before.modelled, result.after.modelled
    if before is not None and after is not None and before.step_ms:
        yield (
            f"Modelled step on {before.gpu}: {before.step_ms:.3g} ms before, "
            f"{after.step_ms:.3g} ms after."
        )


def _waits(site: Site) -> float:
    return site.count_per_step * site.syncs_per_call


def _place(site: Site) -> str:
    from harness.audit.render import short_path

    where = site.library or f"{site.file}:{site.line}"
    return f"{short_path(where)} ({site.kind}, {site.phase})" if site.file else site.op


def document(result: FixResult) -> object:
    """The result as plain data for JSON."""
    return msgspec.to_builtins(result)
