"""Which arms a run compares: parsed from text, or laid out as a ladder, leave-one-out or grid.

Pure functions over data. `Choices` maps each optimization that may be toggled to its variants, in
the order in which fixes are added; every arm names a variant for each optimization that any arm
of the run toggles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from harness.errors import UsageError
from harness.record.records import Arm
from harness.workload import Variant, VariantRole

Choices = Mapping[str, Sequence[Variant]]

BASELINE = "baseline"


def variant_with_role(choices: Choices, optimization: str, role: VariantRole) -> str:
    """Name of the first variant of `optimization` that has this role."""
    for variant in choices[optimization]:
        if variant.role == role:
            return variant.name
    raise UsageError(f"{optimization} has no variant with the role {role!r}; choose another.")


def best_variant(choices: Choices, optimization: str) -> str | None:
    """Name of the variant to use: one that goes beyond what is published, else the published."""
    names = {variant.role: variant.name for variant in reversed(choices[optimization])}
    return names.get("beyond") or names.get("published")


def arm_name(variants: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    """Readable and stable: what the arm changes, as `name=variant`, with commas between."""
    changed = [f"{name}={value}" for name, value in variants.items() if value != baseline[name]]
    return ",".join(changed) or BASELINE


def parse_arms(
    texts: Sequence[str], choices: Choices, *, settings: Mapping[str, str] | None = None
) -> tuple[Arm, ...]:
    """Arms from `baseline` and `name=variant,other=variant`, the baseline first.

    `baseline` gives every optimization its baseline variant and is added where no text names it.
    `settings` changes that common ground: it holds in every arm that does not say otherwise.
    Raises `UsageError` for an unknown name or variant, or an arm given twice.
    """
    changes = [{} if text.strip() == BASELINE else parse_variants(text, choices) for text in texts]
    if {} in changes:
        changes.remove({})
    return _arms([{}, *changes], choices, settings or {})


def ladder(
    choices: Choices, *, role: VariantRole = "published", settings: Mapping[str, str] | None = None
) -> tuple[Arm, ...]:
    """The baseline, then each optimization added in turn: n + 1 arms."""
    fixes = _fixes(choices, role)
    steps = [dict(list(fixes.items())[:count]) for count in range(len(fixes) + 1)]
    return _arms(steps, choices, settings or {})


def leave_one_out(
    choices: Choices, *, role: VariantRole = "published", settings: Mapping[str, str] | None = None
) -> tuple[Arm, ...]:
    """The baseline, all optimizations together, and all but each one: n + 2 arms."""
    fixes = _fixes(choices, role)
    if len(fixes) < 2:
        raise UsageError(
            f"leave-one-out needs two optimizations or more, and here is only {', '.join(fixes)}; "
            "compare it with --arm."
        )
    without = [{name: fixes[name] for name in fixes if name != left_out} for left_out in fixes]
    return _arms([{}, fixes, *without], choices, settings or {})


def grid(
    choices: Choices, *, role: VariantRole = "published", settings: Mapping[str, str] | None = None
) -> tuple[Arm, ...]:
    """Every combination of baseline and fix: 2^n arms, the baseline first."""
    fixes = _fixes(choices, role)
    switches = product((False, True), repeat=len(fixes))
    combinations = [
        {name: value for on, (name, value) in zip(switch, fixes.items(), strict=True) if on}
        for switch in switches
    ]
    return _arms(combinations, choices, settings or {})


def _fixes(choices: Choices, role: VariantRole) -> dict[str, str]:
    """Optimization -> the variant of this role, or the best where it has none of that role."""
    fixes = {
        name: next((v.name for v in choices[name] if v.role == role), best_variant(choices, name))
        for name in choices
    }
    found = {name: variant for name, variant in fixes.items() if variant is not None}
    if not found:
        raise UsageError(
            f"None of {', '.join(choices)} has a fix to try; compare their variants with --arm."
        )
    return found


def parse_variants(text: str, choices: Choices) -> dict[str, str]:
    """Optimization -> variant, as one arm names them. Raises `UsageError` for an unknown name."""
    change: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not name or not value:
            raise UsageError(
                f"Cannot read {part.strip()!r} in the arm {text!r}; write OPTIMIZATION=VARIANT, "
                f"such as {_example(choices)}, joined by commas."
            )
        if name in change:
            raise UsageError(f"The arm {text!r} sets {name} twice; keep one.")
        if name not in choices:
            raise UsageError(
                f"{name!r} in the arm {text!r} is no optimization of this scenario; "
                f"it takes {', '.join(choices)}."
            )
        names = [variant.name for variant in choices[name]]
        if value not in names:
            raise UsageError(f"{name} has no variant {value!r}; choose one of {', '.join(names)}.")
        change[name] = value
    return change


def _example(choices: Choices) -> str:
    name = next(iter(choices))
    return f"{name}={choices[name][-1].name}"


def _arms(
    changes: Sequence[Mapping[str, str]], choices: Choices, settings: Mapping[str, str]
) -> tuple[Arm, ...]:
    involved = [name for name in choices if name in settings or any(name in c for c in changes)]
    baseline = {
        name: settings.get(name, variant_with_role(choices, name, "baseline")) for name in involved
    }
    arms: list[Arm] = []
    for change in changes:
        variants = {name: change.get(name, baseline[name]) for name in involved}
        name = arm_name(variants, baseline)
        twin = next((arm for arm in arms if arm.variants == variants), None)
        if twin is not None:
            raise UsageError(
                f"Two arms are the same, {twin.name}; the noise floor already runs the baseline "
                "twice, so give each arm once."
            )
        arms.append(Arm(name=name, variants=variants, role="arm" if arms else "baseline"))
    return tuple(arms)
