"""Known lines of libraries: what a user can pass or set instead of editing the library."""

from __future__ import annotations

import re
from typing import NamedTuple


class KnownLine(NamedTuple):
    """What to do about one function of a library."""

    path: str
    """Part of the file's path."""
    function: str
    """Pattern of the function's qualified name."""
    instead: tuple[str, ...]
    unless: str | None = None


_EXPERTS = ('model.set_experts_implementation("grouped_mm")',)

KNOWN_LINES: tuple[KnownLine, ...] = (
    KnownLine(
        "transformers/models/", r"Experts\.forward$", _EXPERTS,
        "With a few large experts the reads hide behind the matmuls; and below "
        "compute capability 9.0 the grouped matmul reads its offsets once itself.",
    ),
    KnownLine(
        "transformers/modeling_flash_attention_utils", "",
        (
            "DataCollatorWithFlattening(return_flash_attn_kwargs=True)",
            "# or pass cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k (host integers)",
        ),
    ),
    KnownLine(
        "transformers/masking_utils",
        r"find_packed_sequence_indices$|_ignore_.*mask_sdpa$|fast_all$",
        (
            "# nothing padded: leave attention_mask out; one read a forward, not one a layer",
            "# packed: build the mask in the collator and pass it as a 4-D attention_mask",
        ),
        "At one read at the start of a forward the device is still busy with the previous step, so "
        "only the first launches are delayed; it matters for short steps.",
    ),
    KnownLine(
        "transformers/integrations/sdpa_attention", "",
        (
            "# F.scaled_dot_product_attention turns a boolean mask into a float one in each call:",
            "mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float('-inf'))  # once",
        ),
        "The mask of a short sequence costs microseconds.",
    ),
)  # fmt: skip


def known_line(file: str | None, function: str | None) -> KnownLine | None:
    """The entry for a place in a library, or `None`."""
    path = (file or "").replace("\\", "/")
    for known in KNOWN_LINES:
        if known.path in path and re.search(known.function, function or ""):
            return known
    return None
