"""`gapless audit --fix`: audit, turn on the optimizations that match the findings, audit again."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from harness.audit.known_sites import identity_of
from harness.emulator.tensors.patches import Patches
from harness.errors import UsageError
from harness.origin import in_library
from harness.record.audit_report import AuditReport
from harness.record.records import Record
from harness.tables.grid import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from torch import nn

    from harness.record.audit_report import Site
    from harness.workload import Choice, Detachable


_MOST_LEFT = 5
_PINNED = (
    "save_on_cpu: copies through pinned memory and waits for none, on the compute stream as before"
)


class LossParity(Record, frozen=True, kw_only=True):
    """The losses of both audits, warm-up included: where `backward` began, or else what calls of
    transformers models returned."""

    num_losses: int
    largest_relative_difference: float | None
    """`None` where no call gave a loss with values."""


class FixResult(Record, frozen=True, kw_only=True):
    """Both audits side by side."""

    before: AuditReport
    after: AuditReport
    fixes: tuple[str, ...]
    """What was turned on, or why it was not, one sentence each."""
    left: tuple[str, ...] = ()
    """What `--fix` cannot do, dearest first: the place, why, and what to write instead."""
    parity: LossParity


@dataclass
class Run:
    """What one audited run told beside its report."""

    losses: list[torch.Tensor] = field(default_factory=list)
    """Of each call of a model, where it has values."""
    roots: list[torch.Tensor] = field(default_factory=list)
    """Single values from which `backward` was called."""
    choices: list[Choice] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What else was turned on."""
    saves_unpinned: bool = False
    """Whether `save_on_cpu` was asked to copy through pageable memory."""


def audit_and_fix(audit: Callable[[], AuditReport], *, seed: int = 0) -> FixResult:
    """Run `audit` twice, the second time with what helps against its findings.

    That are the optimizations that they name, on transformers models wherever the step calls them,
    or other inputs for the library where those do it; and pinned memory for
    `torch.autograd.graph.save_on_cpu`. Both runs start from the same seed, so
    that they make the same model and batch. Raises `UsageError` where nothing of it applies.
    """
    import torch

    torch.manual_seed(seed)
    with watched({}) as plain:
        before = audit()
    wanted = wanted_fixes(before)
    if not wanted and not plain.saves_unpinned:
        if not before.findings:
            raise UsageError(f"The audit of {before.target} found nothing that --fix could mend.")
        dearest = next((f" The dearest: {one}" for one in _left(before, before, [])), "")
        raise UsageError(
            f"None of the {len(before.findings)} findings of {before.target} has an optimization "
            f"that --fix could turn on; audit without --fix for what to write instead.{dearest}"
        )
    torch.manual_seed(seed)
    with watched(wanted, pin_saves=plain.saves_unpinned) as fixed:
        after = audit()
    said = tuple(dict.fromkeys([*map(str, fixed.choices), *fixed.said]))
    return FixResult(
        before=before,
        after=after,
        fixes=said or ("no model of transformers was called",),
        left=tuple(_left(before, after, fixed.choices)),
        parity=_parity(plain, fixed),
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
        parity=_parity(*runs),
    )


def wanted_fixes(report: AuditReport) -> dict[str, str]:
    """Optimization -> variant, as the findings name them."""
    named = [f.optimization.partition("=") for f in report.findings if f.optimization]
    return {name: variant for name, _, variant in reversed(named)}


def _left(before: AuditReport, after: AuditReport, choices: Sequence[Choice]) -> Iterator[str]:
    """The dearest findings that are still there, why, and what to write in their place."""
    from harness.tables.audit_text import short_path

    off = {choice.optimization: choice.reason for choice in choices if choice.variant is None}
    known = {(f.kind, f.file, f.line) for f in before.findings}
    waiting = [f for f in after.findings if f.syncs_per_step and (f.kind, f.file, f.line) in known]
    for finding in waiting[:_MOST_LEFT]:
        name = (finding.optimization or "").partition("=")[0]
        why = off.get(name) or (
            "a library's line that no optimization here reaches"
            if finding.file is None or in_library(finding.file)
            else "code of the target, which --fix does not rewrite"
        )
        yield (
            f"{finding.kind} at {short_path(finding.file or '')}:{finding.line} "
            f"({finding.syncs_per_step:g} syncs) stays: {why}. "
            f"Instead: {_in_short(finding.instead)}"
        )


def _in_short(instead: Sequence[str]) -> str:
    """The first line of code, with its body where it is a header; else the first remark."""
    code = [line for line in instead if not line.startswith("#")] or list(instead)
    lines = code[:2] if code and code[0].endswith(":") else code[:1]
    return " ".join(line.strip() for line in lines)


@contextmanager
def watched(wanted: dict[str, str], *, pin_saves: bool = False) -> Iterator[Run]:
    """Turn `wanted` on for each transformers model when it is first called, and keep its losses.

    `pin_saves`: also let `save_on_cpu` copy through pinned memory, without a wait.
    """
    import torch
    from torch.nn.modules import module as modules

    run, seen = Run(), set[int]()
    roots: list[nn.Module] = []
    attached: list[Detachable] = []
    saves = torch.autograd.graph.save_on_cpu
    begin_saving, begin_backward = saves.__init__, torch.autograd.backward

    def save(self: Any, pin_memory: bool = False, *args: Any, **kwargs: Any) -> None:
        run.saves_unpinned |= not pin_memory
        if pin_saves and not pin_memory:
            run.said.append(_PINNED)
        begin_saving(self, pin_memory or pin_saves, *args, **kwargs)

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(tensors, torch.Tensor) and tensors.numel() == 1:
            _keep(tensors, run.roots)
        begin_backward(tensors, *args, **kwargs)

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
        _keep(loss, run.losses)

    hooks = (
        modules.register_module_forward_pre_hook(before_call),
        modules.register_module_forward_hook(after_call),
    )
    patches = Patches()
    patches.set(saves, "__init__", save)
    patches.set(torch.autograd, "backward", backward)
    try:
        yield run
    finally:
        patches.restore()
        for hook in hooks:
            hook.remove()
        for optimized in reversed(attached):
            optimized.detach()


def _keep(value: torch.Tensor, among: list[torch.Tensor]) -> None:
    # The emulated device's values are on the host: to look at them makes nobody wait.
    on_host = getattr(value, "host_value", value)
    if on_host is not None:
        among.append(on_host.detach().clone())


def _turn_on(module: nn.Module, wanted: dict[str, str], run: Run) -> Iterator[Detachable]:
    from gapless.optimizing import optimize
    from optimizations.implementation_switch import pretrained_model
    from optimizations.optimization_catalogue import all_optimizations

    target = pretrained_model(module)
    if target is None:
        return
    for name, optimization in all_optimizations().items():
        if name not in wanted:
            continue
        remedy = optimization.library_remedy(target)
        if remedy is not None:
            sentence, applied = remedy
            run.said.append(sentence)
            yield applied
            continue
        choice = optimization.choose(module, packed=False, tokens=None)
        run.choices.append(choice)
        if choice.variant is not None:
            yield optimize(module, {name: choice.variant})


def _parity(plain: Run, fixed: Run) -> LossParity:
    before, after = (plain.roots, fixed.roots) if plain.roots else (plain.losses, fixed.losses)
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
        notes=(*result.fixes, said, *_modelled(result), *result.left),
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
    from harness.tables.audit_text import short_path

    where = site.library or f"{site.file}:{site.line}"
    return f"{short_path(where)} ({site.name}, {site.phase})" if site.file else site.op


def document(result: FixResult) -> object:
    """The result as plain data for JSON."""
    return msgspec.to_builtins(result)
