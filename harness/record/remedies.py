"""What to do about each kind of wait, in one sentence."""

from __future__ import annotations

REMEDIES: dict[str, str] = {
    "scalar_read": "Keep the value on the device; read once per logging interval.",
    "per_param_scalar_read": "Use torch._foreach_norm, stack, and read once, or not at all.",
    "bool_branch": "Decide without the value (torch.where, clamp), or know it on the host.",
    "found_inf_read": "A fused optimizer takes found_inf on the device.",
    "optimizer_step_counter": "Keep state['step'] on the CPU, or use fused or capturable.",
    "print_tensor": "Drop the print, or do it every N steps.",
    "slice_bound_read": "Get all bounds with one tolist() per step, or keep them on the host.",
    "scalar_tensor_index": "Index with a 1-d tensor, or keep the counter on the host.",
    "implicit_scalar_arg": "Pass a host number, or use an overload that takes a tensor.",
    "bool_mask_index": "Weight by the mask, or compute integer indices once and reuse them.",
    "dynamic_output_size": "Give the output size from the host, or use a fixed-size variant.",
    "expert_poll": "Sort tokens by expert once and read all counts together, or group the GEMMs.",
    "per_layer_rebuild": "Compute it once before the first layer and pass it on.",
    "error_check_read": "Use the variant without a check (*_ex), and check rarely.",
    "argument_validation": "Switch validation off (validate_args=False) in the training loop.",
    "pageable_h2d": "Pin the host memory and copy with non_blocking=True, ahead of use.",
    "blocking_pinned_h2d": "The memory is pinned: copy with non_blocking=True.",
    "pageable_non_blocking": "Pin the host memory: a pageable copy blocks all the same.",
    "d2h_copy": "Leave the data on the device, or copy without blocking and read it later.",
    "explicit_synchronize": "Drop the synchronise, or wait for one event.",
    "empty_cache": "Do not empty the cache in the training loop.",
}


def remedy_for(kind: str) -> str | None:
    """What to do about this kind, or `None` where nothing general can be said."""
    return REMEDIES.get(kind)
