"""The optimizations by name. A new one is a file of its own and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.workload import Optimization
    from optimizations.packed_metadata import PackedBackend

NAMES: tuple[str, ...] = ("packed-metadata", "checkpoint-reload", "moe-routing")


def create(name: str, *, attention: PackedBackend = "sdpa-mask") -> Optimization:
    """Make the optimization `name`; imports its file, and so torch, only then.

    `attention` is the backend of packed attention. Raises `UsageError` for an unknown name.
    """
    if name == "packed-metadata":
        from optimizations.packed_metadata import PackedMetadata

        return PackedMetadata(attention)
    if name == "checkpoint-reload":
        from optimizations.checkpoint_reload import CheckpointReload

        return CheckpointReload()
    if name == "moe-routing":
        from optimizations.moe_routing import MoeRouting

        return MoeRouting()
    raise UsageError(f"There is no optimization '{name}'; choose one of {', '.join(NAMES)}.")
