"""Sorts syncs by the ops around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.audit.trace.runtime_apis import ApiRole, base_name
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.audit.trace.waits import CopyKind

_KIND_OF_OP = {
    "aten::_linalg_check_errors": SyncKind.ERROR_CHECK_READ,
    "aten::index": SyncKind.BOOL_MASK_INDEX,
    "aten::index_put": SyncKind.BOOL_MASK_INDEX,
    "aten::index_put_": SyncKind.BOOL_MASK_INDEX,
    "aten::_index_put_impl_": SyncKind.BOOL_MASK_INDEX,
    "aten::masked_scatter_backward": SyncKind.BOOL_MASK_INDEX,
    "aten::masked_select": SyncKind.BOOL_MASK_INDEX,
    "aten::nonzero": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::argwhere": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::_unique": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::_unique2": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::unique_dim": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::unique_consecutive": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::unique_dim_consecutive": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::bincount": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::histc": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::one_hot": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::repeat_interleave": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::_ctc_loss": SyncKind.DYNAMIC_OUTPUT_SIZE,
    "aten::_local_scalar_dense": SyncKind.SCALAR_READ,
}
_COPY_OPS = ("aten::_to_copy", "aten::copy_")
_BRANCH_OPS = frozenset({"aten::is_nonzero", "aten::equal", "aten::allclose"})


def waiting_op(chain: tuple[str, ...]) -> str | None:
    """The outermost op of the chain that waits by its nature; `None` where there is none.

    `chain`: enclosing ops, outermost first. A boolean index waits inside `aten::nonzero`, but what
    the user wrote, and what the emulated audit reports, is `aten::index`.
    """
    for op in chain:
        if op in _KIND_OF_OP:
            return op
    return next((op for op in _COPY_OPS if op in chain), None)


def wait_kind(chain: tuple[str, ...], role: int, api: str, copy: CopyKind | None) -> SyncKind:
    """The kind of a sync."""
    op = waiting_op(chain)
    if op == "aten::_local_scalar_dense" and not _BRANCH_OPS.isdisjoint(chain):
        return SyncKind.BOOL_BRANCH
    uploads = copy is not None and copy.direction == "h2d"
    if op in _KIND_OF_OP and not uploads:
        return _KIND_OF_OP[op]
    # An index or value given as a host tensor is uploaded inside the op that uses it.
    if copy is not None and copy.direction == "h2d":
        return SyncKind.PINNED_H2D if copy.memory == "pinned" else SyncKind.PAGEABLE_H2D
    if copy is not None and copy.direction == "d2h":
        return SyncKind.D2H_COPY
    if role == ApiRole.BLOCKING_COPY:
        return SyncKind.BLOCKING_COPY
    if base_name(api) == "EventSynchronize":
        return SyncKind.EVENT_SYNCHRONIZE
    return SyncKind.EXPLICIT_SYNCHRONIZE
