"""`flex_attention` on the emulated device, whose kernels torch compiles for a GPU only.

With values it is computed as torch's own eager formula has it, score by score. On shapes the one
kernel is one op, as it is on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.attention.flex_attention as public
from torch._higher_order_ops.flex_attention import FlexAttentionHOP, math_attention

from harness.emulator.kernels.flash_kernel import FlashAttention
from harness.emulator.kernels.packed_kernels import Attention
from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from harness.emulator.dispatch.dispatcher import Dispatcher
    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.patches import Patches

NOTE = "flex_attention ran by its formula, uncompiled: its kernels exist for a GPU only."


def patch_flex_attention(
    patches: Patches,
    dispatcher: Dispatcher,
    observers: Observers,
    note: Callable[[str], None],
) -> None:
    """Let calls of flex attention with device tensors run without a compiler."""
    original = FlexAttentionHOP.__call__

    def call(
        self: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: Any,
        block_mask: Any,
        scale: float,
        kernel_options: Any,
        score_mod_other_buffers: tuple[Any, ...] = (),
        mask_mod_other_buffers: tuple[Any, ...] = (),
    ) -> Any:
        rest = (block_mask, scale, kernel_options, score_mod_other_buffers, mask_mod_other_buffers)
        if not isinstance(query, EmulatedTensor):
            return original(self, query, key, value, score_mod, *rest)
        note(NOTE)
        if dispatcher.shapes_only:
            return _one_kernel(query, key, value, scale)
        with observers.uncounted_waits():
            return math_attention(query, key, value, score_mod, *rest)

    patches.set(FlexAttentionHOP, "__call__", call)
    # torch's own switch to call the formula at once; otherwise it warns and asks for a compiler.
    patches.set(public, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def _one_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(batch, heads, length, size) -> output, log-sum-exp and largest scores."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    settings = Attention(scale, causal=True)
    apply: Any = FlashAttention.apply
    out, lse = apply(q, k, v, None, None, q.shape[1], k.shape[1], settings)
    return out.transpose(1, 2), lse, lse.detach()
