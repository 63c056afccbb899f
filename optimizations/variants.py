"""Looks up a variant by the name a user wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.workload import Optimization, Variant


def variant_of(optimization: Optimization, name: str) -> Variant:
    """The variant `name`. Raises `UsageError` that names the choices for an unknown one."""
    for variant in optimization.variants:
        if variant.name == name:
            return variant
    choices = ", ".join(variant.name for variant in optimization.variants)
    raise UsageError(f"{optimization.name} has no variant '{name}'; choose one of {choices}.")
