"""What makes the host wait for the device: the one vocabulary of syncs.

Reports store a kind as its value, so that a value never changes and none is ever taken away.
"""

from __future__ import annotations

from enum import StrEnum


class SyncKind(StrEnum):
    """A kind of sync: what happens, the finding that speaks about it, and what to do.

    >>> SyncKind("bool_branch").finding
    'scalar-read'
    """

    sentence: str
    """What happens, in one sentence."""
    finding: str
    """Kind of the finding that describes it where no more special one does, such as a copy that is
    never read."""
    remedy: str
    """What to do about it, in one sentence."""

    def __new__(cls, value: str, finding: str, sentence: str, remedy: str) -> SyncKind:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.finding, kind.sentence, kind.remedy = finding, sentence, remedy
        return kind

    SCALAR_READ = (
        "scalar_read",
        "scalar-read",
        "The host reads one value of a device tensor.",
        "Keep the value on the device; read once per logging interval.",
    )
    PER_PARAM_SCALAR_READ = (
        "per_param_scalar_read",
        "scalar-read",
        "The host reads one value for each parameter.",
        "Use torch._foreach_norm, stack, and read once, or not at all.",
    )
    BOOL_BRANCH = (
        "bool_branch",
        "scalar-read",
        "Python decides by the value of a device tensor.",
        "Decide without the value (torch.where, clamp), or know it on the host.",
    )
    FOUND_INF_READ = (
        "found_inf_read",
        "scalar-read",
        "The gradient scaler reads whether a gradient overflowed.",
        "A fused optimizer takes found_inf on the device.",
    )
    PRINT_TENSOR = (
        "print_tensor",
        "scalar-read",
        "A device tensor is turned into text.",
        "Drop the print, or do it every N steps.",
    )
    IMPLICIT_SCALAR_ARG = (
        "implicit_scalar_arg",
        "scalar-read",
        "A device tensor stands where an op takes a number.",
        "Pass a host number, or use an overload that takes a tensor.",
    )
    OPTIMIZER_STEP_COUNTER = (
        "optimizer_step_counter",
        "optimizer-step-on-device",
        "The optimizer reads a step counter that lies on the device.",
        "Keep state['step'] on the CPU, or use fused or capturable.",
    )
    SLICE_BOUND_READ = (
        "slice_bound_read",
        "tensor-index",
        "The bound of a slice is a device tensor.",
        "Get all bounds with one tolist() per step, or keep them on the host.",
    )
    SCALAR_TENSOR_INDEX = (
        "scalar_tensor_index",
        "tensor-index",
        "An index is a device tensor of no dimensions.",
        "Index with a 1-d tensor, or keep the counter on the host.",
    )
    BOOL_MASK_INDEX = (
        "bool_mask_index",
        "data-dependent-shape",
        "A boolean mask selects elements, whose number the host must know.",
        "Weight by the mask, or compute integer indices once and reuse them.",
    )
    DYNAMIC_OUTPUT_SIZE = (
        "dynamic_output_size",
        "data-dependent-shape",
        "The size of an op's output depends on its data.",
        "Give the output size from the host, or use a fixed-size variant.",
    )
    PER_LAYER_REBUILD = (
        "per_layer_rebuild",
        "data-dependent-shape",
        "Several modules make an output of the same size from the same data.",
        "Compute it once before the first layer and pass it on.",
    )
    EXPERT_POLL = (
        "expert_poll",
        "polling-loop",
        "A loop asks the device in each turn, such as once per expert.",
        "Sort tokens by expert once and read all counts together, or group the GEMMs.",
    )
    ERROR_CHECK_READ = (
        "error_check_read",
        "validation-check",
        "A routine reads its error code.",
        "Use the variant without a check (*_ex), and check rarely.",
    )
    ARGUMENT_VALIDATION = (
        "argument_validation",
        "validation-check",
        "A library reads an argument to check it.",
        "Switch validation off (validate_args=False) in the training loop.",
    )
    PAGEABLE_H2D = (
        "pageable_h2d",
        "serialized-copy",
        "A copy from pageable host memory blocks until it is done.",
        "Pin the host memory and copy with non_blocking=True, ahead of use.",
    )
    BLOCKING_PINNED_H2D = (
        "blocking_pinned_h2d",
        "serialized-copy",
        "A copy from pinned host memory is asked to block.",
        "The memory is pinned: copy with non_blocking=True.",
    )
    PINNED_H2D = (
        "pinned_h2d",
        "serialized-copy",
        "The host waits for a copy from pinned memory.",
        "The memory is pinned: copy with non_blocking=True, and order streams by an event.",
    )
    BLOCKING_COPY = (
        "blocking_copy",
        "serialized-copy",
        "A copy call of the driver blocks the host.",
        "Use the asynchronous copy on a stream, with pinned memory on the host's side.",
    )
    D2H_COPY = (
        "d2h_copy",
        "serialized-copy",
        "A copy to the host waits for what is queued before it.",
        "Leave the data on the device, or copy without blocking and read it later.",
    )
    PAGEABLE_NON_BLOCKING = (
        "pageable_non_blocking",
        "pageable-async-copy",
        "A copy asks not to block, but its host memory is pageable.",
        "Pin the host memory: a pageable copy blocks all the same.",
    )
    EXPLICIT_SYNCHRONIZE = (
        "explicit_synchronize",
        "explicit-synchronize",
        "The code synchronises with the device or a stream.",
        "Drop the synchronise, or wait for one event.",
    )
    EVENT_SYNCHRONIZE = (
        "event_synchronize",
        "explicit-synchronize",
        "The code synchronises with an event.",
        "Let a stream wait for the event (stream.wait_event), or ask event.query() later.",
    )
    EMPTY_CACHE = (
        "empty_cache",
        "allocator",
        "The allocator gives its memory back to the driver.",
        "Do not empty the cache in the training loop.",
    )


def kinds_of(finding: str) -> frozenset[SyncKind]:
    """The kinds of sync that the finding `finding` speaks about, such as `tensor-index`.

    Raises `ValueError` where it speaks about none.
    """
    found = frozenset(kind for kind in SyncKind if kind.finding == finding)
    if not found:
        raise ValueError(f"No sync has the finding {finding!r}; see harness/record/sync_kinds.py.")
    return found
