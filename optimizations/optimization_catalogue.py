"""The optimizations by name. A new one is a file of its own and a line in `_OWN`.

Those of other packages, entry points `gapless.optimizations`, come after them.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeGuard

from harness import plugins
from harness.errors import UsageError
from harness.workload import Optimization

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.record.finding import Answer

_OWN = (
    "packed_metadata:PackedMetadata",
    "checkpoint_reload:CheckpointReload",
    "moe_routing:MoeRouting",
)
"""`module:class` in this package, in the order in which fixes are added."""

_MUST = ("requires", "attach", "tolerance")


@cache
def all_optimizations() -> Mapping[str, Optimization]:
    """Every optimization by name, with the settings it has by itself.

    Raises `UsageError` for one of `_OWN` that is none, for a plug-in whose name is taken, and
    where two offer the same attention.
    """
    made = [checked(_imported(line)) for line in _OWN]
    own = {optimization.name: optimization for optimization in made}
    found = plugins.load(plugins.OPTIMIZATIONS, checked)
    every = plugins.merged("optimizations", own, found, lambda one: one.name)
    labels = dict.fromkeys(own, plugins.OWN) | {one.value.name: one.label for one in found}
    owners: dict[str, str] = {}
    for name, optimization in every.items():
        for attention in optimization.attentions:
            first = owners.setdefault(attention, name)
            if first != name:
                what = f"Two optimizations offer the attention {attention!r}"
                raise plugins.twice(what, labels[first], labels[name])
    return MappingProxyType(every)


def names() -> tuple[str, ...]:
    """The names, in the order in which fixes are added."""
    return tuple(all_optimizations())


def create(name: str, *, attention: str | None = None) -> Optimization:
    """The optimization `name`, with this backend of attention where it offers it.

    Raises `UsageError` for an unknown name.
    """
    found = all_optimizations().get(name)
    if found is None:
        raise UsageError(f"There is no optimization '{name}'; choose one of {', '.join(names())}.")
    return found.using(attention) if attention in found.attentions and attention else found


def attention_owners() -> dict[str, str]:
    """Attention that is not the library's -> the optimization that offers it."""
    return {
        attention: name
        for name, optimization in all_optimizations().items()
        for attention in optimization.attentions
    }


def answers() -> tuple[Answer, ...]:
    """What all optimizations answer to findings."""
    return tuple(answer for one in all_optimizations().values() for answer in one.answers)


def checked(value: object) -> Optimization:
    """`value` or, of a class, an instance of it. Raises `UsageError` that says what is missing."""
    made = value() if isinstance(value, type) else value
    if not _derives(made):
        raise UsageError(f"{value!r} does not derive from harness.workload.Optimization")
    for name in ("name", "summary", "trade_off"):
        if not isinstance(getattr(made, name), str):
            raise UsageError(f"{type(made).__name__} has no {name}")
    lacking = [name for name in _MUST if getattr(type(made), name) is getattr(Optimization, name)]
    if lacking:
        raise UsageError(f"{made.name} has no method {lacking[0]}")
    _check_variants(made)
    attentions: object = made.attentions
    if isinstance(attentions, str):
        raise UsageError(f"the attentions of {made.name} are one word; give a tuple of names")
    for answer in made.answers:
        name, _, variant = answer.optimization.partition("=")
        if name != made.name or variant not in [one.name for one in made.variants]:
            raise UsageError(f"{made.name} answers for {answer.optimization}, which it has not")
        if not (answer.kinds or answer.file):
            raise UsageError(f"an answer of {made.name} names neither kinds nor a file")
    return made


def _derives(value: object) -> TypeGuard[Optimization]:
    # Not isinstance, which a protocol answers by names only.
    return Optimization in type(value).__mro__


def _check_variants(made: Optimization) -> None:
    roles = [variant.role for variant in made.variants or ()]
    called = {variant.name for variant in made.variants or ()}
    if roles.count("baseline") != 1 or roles.count("published") > 1 or len(called) < len(roles):
        raise UsageError(
            f"{made.name} needs variants with names of their own, exactly one of them with the "
            "role baseline and at most one with the role published"
        )


def _imported(line: str) -> object:
    module, _, name = line.partition(":")
    found: object = getattr(importlib.import_module(f"optimizations.{module}"), name)
    return found
