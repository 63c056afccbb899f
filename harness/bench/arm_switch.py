"""Toggles a built workload between arms."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from torch import nn

    from harness.record.records import Arm
    from harness.workload import Attachment, Optimization


class ArmSwitch:
    """The optimizations attached to one model, and which variants are on."""

    def __init__(self, choices: Mapping[str, Mapping[str, str]]) -> None:
        self._choices = choices
        self._attachments: dict[str, Attachment] = {}

    def attach(self, name: str, optimization: Optimization, model: nn.Module) -> None:
        """Attach one optimization; the same model stays attached until `detach`."""
        self._attachments[name] = optimization.attach(model)

    def select(self, arm: str) -> None:
        """Make the model compute as this arm from the next forward on."""
        for name, variant in self._choices[arm].items():
            self._attachments[name].select(variant)

    def detach(self) -> None:
        """Leave the model as it was, in the reverse order of attaching."""
        while self._attachments:
            _, attachment = self._attachments.popitem()
            attachment.detach()


def resolve_arms(
    arms: Sequence[Arm], optimizations: Mapping[str, Optimization]
) -> dict[str, dict[str, str]]:
    """For each arm a variant of every optimization that any arm names.

    An arm that does not name one gets its variant of role `baseline`. Raises `UsageError` for an
    optimization or variant that does not exist.
    """
    used = dict.fromkeys(name for arm in arms for name in arm.variants)
    for name in used:
        if name not in optimizations:
            raise UsageError(
                f"This scenario has no optimization {name!r}; it has {_listed(optimizations)}."
            )
    choices: dict[str, dict[str, str]] = {}
    for arm in arms:
        choices[arm.name] = {
            name: arm.variants.get(name, baseline_variant(optimizations[name])) for name in used
        }
        for name, variant in choices[arm.name].items():
            known = [variant.name for variant in optimizations[name].variants]
            if variant not in known:
                raise UsageError(f"{name} has no variant {variant!r}; it has {_listed(known)}.")
    return choices


def check_requirements(
    choices: Mapping[str, Mapping[str, str]],
    optimizations: Mapping[str, Optimization],
    model: nn.Module,
) -> None:
    """Raise `UsageError` with the reason where an arm cannot run on this model and machine."""
    for arm, variants in choices.items():
        for name, variant in variants.items():
            reason = optimizations[name].requires(model, variant)
            if reason is not None:
                raise UsageError(f"Arm {arm!r} cannot run {name}={variant}: {reason}")


@contextmanager
def attached(
    choices: Mapping[str, Mapping[str, str]],
    optimizations: Mapping[str, Optimization],
    model: nn.Module,
) -> Iterator[ArmSwitch]:
    """Attach every optimization the arms use, and detach them whatever happens."""
    switch = ArmSwitch(choices)
    try:
        for name in next(iter(choices.values())):
            switch.attach(name, optimizations[name], model)
        yield switch
    finally:
        switch.detach()


def baseline_variant(optimization: Optimization) -> str:
    """The name of its variant of role `baseline`."""
    return next(variant.name for variant in optimization.variants if variant.role == "baseline")


def parity_tolerance(
    arm: Mapping[str, str],
    baseline: Mapping[str, str],
    optimizations: Mapping[str, Optimization],
    dtype: torch.dtype,
) -> tuple[float, str]:
    """Allowed relative difference of an arm against the baseline arm, and every reason for it.

    The largest over the optimizations in which the two differ. The baseline's own variant counts
    too, because an optimization states its tolerances against its variant of role `baseline`.
    """
    stated = [
        optimizations[name].tolerance(variants[name], dtype)
        for name in arm
        if arm[name] != baseline[name]
        for variants in (arm, baseline)
    ]
    tolerance = max((value for value, _ in stated), default=0.0)
    if tolerance == 0.0:
        return 0.0, "the same operations in the same order"
    reasons = dict.fromkeys(reason for value, reason in stated if value > 0.0)
    return tolerance, "; ".join(reasons)


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names) if names else "none"
