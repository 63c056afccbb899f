"""Sort a wait by the ops around it, in the words the emulated audit uses too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.audit.trace.runtime_apis import ApiRole, base_name

if TYPE_CHECKING:
    from harness.audit.trace.waits import CopyKind

_KIND_OF_OP = {
    "aten::_linalg_check_errors": "error_check_read",
    "aten::index": "bool_mask_index",
    "aten::index_put": "bool_mask_index",
    "aten::index_put_": "bool_mask_index",
    "aten::_index_put_impl_": "bool_mask_index",
    "aten::masked_scatter_backward": "bool_mask_index",
    "aten::masked_select": "bool_mask_index",
    "aten::nonzero": "dynamic_output_size",
    "aten::argwhere": "dynamic_output_size",
    "aten::_unique": "dynamic_output_size",
    "aten::_unique2": "dynamic_output_size",
    "aten::unique_dim": "dynamic_output_size",
    "aten::unique_consecutive": "dynamic_output_size",
    "aten::unique_dim_consecutive": "dynamic_output_size",
    "aten::bincount": "dynamic_output_size",
    "aten::histc": "dynamic_output_size",
    "aten::one_hot": "dynamic_output_size",
    "aten::repeat_interleave": "dynamic_output_size",
    "aten::_ctc_loss": "dynamic_output_size",
    "aten::_local_scalar_dense": "scalar_read",
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


def wait_kind(chain: tuple[str, ...], role: int, api: str, copy: CopyKind | None) -> str:
    """What sort of wait it is."""
    op = waiting_op(chain)
    if op == "aten::_local_scalar_dense" and not _BRANCH_OPS.isdisjoint(chain):
        return "bool_branch"
    uploads = copy is not None and copy.direction == "h2d"
    if op in _KIND_OF_OP and not uploads:
        return _KIND_OF_OP[op]
    # An index or value given as a host tensor is uploaded inside the op that uses it.
    if copy is not None and copy.direction == "h2d":
        return "pinned_h2d" if copy.memory == "pinned" else "pageable_h2d"
    if copy is not None and copy.direction == "d2h":
        return "d2h_copy"
    if role == ApiRole.BLOCKING_COPY:
        return "blocking_copy"
    if base_name(api) == "EventSynchronize":
        return "event_synchronize"
    return "explicit_synchronize"
