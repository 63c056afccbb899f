"""Derivatives that make the host wait on CUDA, by the function they are the derivative of."""

from __future__ import annotations

from harness.emulator.rules import conditions as when
from harness.emulator.tensors.op_facts import Rule
from harness.record.sync_kinds import SyncKind

_DERIVATIVES = "torch/csrc/autograd/FunctionsManual.cpp, confirmed by a profile of torch 2.13"
DERIVATIVE_RULES: dict[str, tuple[Rule, ...]] = {
    "prod": (
        Rule(
            "aten::nonzero",
            SyncKind.DYNAMIC_OUTPUT_SIZE,
            "the derivative of a product of all elements looks for zeros",
            when.not_scalar_and_whole,
            f"{_DERIVATIVES}: prod_backward",
        ),
        Rule(
            "aten::_local_scalar_dense",
            SyncKind.BOOL_BRANCH,
            "the derivative of a product along a dimension asks whether there are zeros",
            when.not_scalar_and_along,
            f"{_DERIVATIVES}: prod_backward with dim",
        ),
    ),
    "cumprod": (
        Rule(
            "aten::_local_scalar_dense",
            SyncKind.BOOL_BRANCH,
            "the derivative of a product along several elements asks whether there are zeros",
            when.several_along,
            f"{_DERIVATIVES}: cumprod_backward",
        ),
    ),
    **dict.fromkeys(
        ("masked_fill", "masked_fill_"),
        (
            Rule(
                "aten::masked_select",
                SyncKind.BOOL_MASK_INDEX,
                "the fill value is a tensor that needs a gradient",
                when.value_needs_gradient,
                f"{_DERIVATIVES}: masked_fill_backward",
            ),
        ),
    ),
}
"""Function -> rules of its derivative, over the arguments of the function itself."""
