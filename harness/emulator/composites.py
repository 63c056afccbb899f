"""Functions of torch that read the device inside C++, each with the kind of its read.

Without this their reads would look like a tensor passed where a number is expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.emulator.patches import Patches

_READERS: tuple[tuple[Any, str, str], ...] = (
    (torch, "is_nonzero", "bool_branch"),
    (torch, "istft", "argument_validation"),
    (torch.nn.functional, "one_hot", "dynamic_output_size"),
)
"""(module, function, kind)."""


def patch_composites(patches: Patches) -> None:
    """Let the reads of these functions be known by what they are for."""
    for owner, name, kind in _READERS:
        patches.wrap(owner, name, _reading(kind))


def _reading(kind: str) -> Callable[..., Any]:
    def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with Reading(kind):
            return original(*args, **kwargs)

    return around
