"""Where integer data comes from, so that masks and indices made anew from the same data are known.

Two storages have the same lineage where the same ops computed them from the same data. A later
write changes the storage's version, which lineage goes together with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.emulator.tensors.layouts import LayoutTable


def input_lineage(args: Sequence[Any], layouts: LayoutTable) -> int | None:
    """What an op's first argument holds; `None` where that is no device tensor."""
    first = args[0] if args else None
    if type(first) is not EmulatedTensor:
        return None
    storage = first.allocation
    return hash((storage.lineage, storage.version, layouts.of(first)))


def inherit(
    result: EmulatedTensor, signature: tuple[object, ...], sources: Sequence[EmulatedTensor]
) -> None:
    """The lineage of a fresh result: an op with this signature over `sources`."""
    states = [(t.allocation.lineage, t.allocation.version) for t in sources]
    result.allocation.lineage = hash((signature, *states))
