"""Which ops make the host wait on CUDA: the rules as data.

Each rule names an op, the condition under which it waits, how often it waits per call, the kind of
wait, the torch versions it holds for, and the evidence. CUDA is meant, not the CPU kernels that
compute the values here: ops that read on the CPU only (`one_hot` with `num_classes`,
`_assert_async`, `grouped_mm`, `embedding_renorm_`) have no rule.
"""

from __future__ import annotations

import torch

from harness.emulator.rules import conditions as when
from harness.emulator.rules.check_rules import CHECK_RULES
from harness.emulator.tensors.op_facts import Rule, Version
from harness.record.sync_kinds import SyncKind

_NONZERO = "aten/src/ATen/native/cuda/Nonzero.cu: memcpy_and_sync of the count"
_INDEXING = "ATen/native/IndexingUtils.h expandTensors; pytorch#12461"
_PUT = "aten/src/ATen/native/TensorAdvancedIndexing.cpp; pytorch#57515, #61612, #62092"
_UNIQUE = "aten/src/ATen/native/cuda/UniqueCub.cu, Unique.cu"

RULES: tuple[Rule, ...] = (
    # Reads of device values by the host
    Rule(
        "aten::_local_scalar_dense",
        SyncKind.SCALAR_READ,
        "the tensor is on the device",
        when.first_on_device(1),
        "aten/src/ATen/native/cuda/CUDAScalar.cu",
    ),
    Rule(
        "aten::equal",
        SyncKind.BOOL_BRANCH,
        "same shapes with elements, and not the same data in the same layout",
        when.compares_data,
        "aten/src/ATen/native/cuda/Equal.cpp: cuda_equal",
    ),
    Rule(
        "aten::allclose",
        SyncKind.BOOL_BRANCH,
        "always",
        when.always(1),
        "tag data_dependent_output",
    ),
    # Output size depends on the data
    Rule("aten::nonzero", SyncKind.DYNAMIC_OUTPUT_SIZE, "always", when.always(1), _NONZERO),
    Rule("aten::argwhere", SyncKind.DYNAMIC_OUTPUT_SIZE, "always", when.always(1), _NONZERO),
    Rule(
        "aten::index",
        SyncKind.BOOL_MASK_INDEX,
        "one per boolean mask on the device",
        when.device_masks,
        _INDEXING,
    ),
    Rule(
        "aten::index",
        SyncKind.PAGEABLE_H2D,
        "an integer index on the host is copied",
        when.host_indices,
        _INDEXING,
        confidence="medium",
    ),
    *(
        rule
        for op in ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
        for rule in (
            Rule(
                op,
                SyncKind.BOOL_MASK_INDEX,
                "one per device mask, unless one mask takes a host number (masked_fill)",
                when.put_masks,
                _PUT,
            ),
            Rule(
                op,
                SyncKind.PAGEABLE_H2D,
                "a host number assigned by integer index is copied",
                when.put_host_value,
                "pytorch#186486, #188330",
                confidence="medium",
            ),
            Rule(
                op,
                SyncKind.PAGEABLE_H2D,
                "an integer index on the host is copied",
                when.host_indices,
                _INDEXING,
                confidence="medium",
            ),
        )
    ),
    Rule(
        "aten::masked_select",
        SyncKind.BOOL_MASK_INDEX,
        "always",
        when.always(1),
        "aten/src/ATen/native/cuda/IndexKernel.cpp",
    ),
    Rule(
        "aten::masked_scatter_backward",
        SyncKind.BOOL_MASK_INDEX,
        "always",
        when.always(1),
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp: masked_select of the gradient",
    ),
    *(
        Rule(
            op,
            SyncKind.IMPLICIT_SCALAR_ARG,
            "the value is a device tensor",
            when.device_value,
            "aten/src/ATen/native/cuda/IndexKernel.cu masked_fill__cuda: value.item()",
            confidence="low",
            overload="Tensor",
        )
        for op in ("aten::masked_fill", "aten::masked_fill_")
    ),
    *(
        Rule(
            op,
            SyncKind.IMPLICIT_SCALAR_ARG,
            "the value is a device tensor",
            when.device_fill,
            "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_fill_ of source.item()",
            confidence="medium",
            overload="int_Tensor",
        )
        for op in ("aten::index_fill", "aten::index_fill_")
    ),
    *(
        Rule(
            op,
            SyncKind.IMPLICIT_SCALAR_ARG,
            "one per bound that is a device tensor",
            when.device_bounds,
            "aten/src/ATen/native/TensorFactories.cpp: linspace(start.item(), end.item(), ...)",
        )
        for op in ("aten::linspace", "aten::logspace")
    ),
    Rule(
        "aten::where",
        SyncKind.PAGEABLE_H2D,
        "a 0-dim host tensor operand is copied",
        when.host_operand,
        "aten/src/ATen/native/TensorCompare.cpp",
        confidence="medium",
        overload="self",
    ),
    *(
        Rule(op, SyncKind.DYNAMIC_OUTPUT_SIZE, condition, syncs, _UNIQUE)
        for op, condition, syncs in (
            ("aten::_unique", "always", when.always(1)),
            ("aten::_unique2", "always", when.always(1)),
            ("aten::unique_consecutive", "of all elements", when.unique_consecutive_whole),
        )
    ),
    *(
        Rule(
            op,
            SyncKind.DYNAMIC_OUTPUT_SIZE,
            "Thrust waits at the end of each of its algorithms: sort, scans, unique",
            syncs,
            "aten/src/ATen/native/cuda/Unique.cu: unique_dim_cuda_template, compute_unique",
            confidence="medium",
            doubt="1 to 6 times a call; whether Thrust waits at the end of algorithms that return "
            "nothing to the host depends on its release",
        )
        for op, syncs in (
            ("aten::unique_dim", when.unique_dim),
            ("aten::unique_dim_consecutive", when.unique_dim_consecutive),
            ("aten::unique_consecutive", when.unique_consecutive_along),
        )
    ),
    Rule(
        "aten::isin",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "many test elements: both sides are made unique and sorted",
        when.isin_sorts,
        "aten/src/ATen/native/TensorCompare.cpp isin_sorting: two at::_unique",
        confidence="medium",
        overload="Tensor_Tensor",
    ),
    Rule(
        "aten::bincount",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "min and max are read, for uint8 only max",
        when.bincount,
        "aten/src/ATen/native/cuda/SummaryOps.cu; unsloth-zoo#1248 measured 2",
    ),
    Rule(
        "aten::histc",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "min == max, so the range is read",
        when.histc,
        "aten/src/ATen/native/cuda/SummaryOps.cu",
    ),
    Rule(
        "aten::repeat_interleave",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "tensor repeats without output_size",
        when.repeats_without_size,
        "ATen/native/Repeat.h",
        overload="Tensor",
    ),
    Rule(
        "aten::one_hot",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "no num_classes given",
        when.one_hot_open,
        "aten/src/ATen/native/Onehot.cpp",
    ),
    Rule(
        "aten::_grouped_mm",
        SyncKind.D2H_COPY,
        "the fallback copies the offsets: not bfloat16 throughout, or not capability 9.0 or 10.x",
        when.grouped_by_fallback,
        "aten/src/ATen/native/cuda/GroupedBlas.cpp: use_fast_path; ATen/native/GroupedMMUtils.h: "
        "_grouped_mm_fallback, offs.value().cpu()",
    ),
    Rule(
        "aten::linalg_matrix_exp",
        SyncKind.D2H_COPY,
        "larger than 1 x 1: the norm is copied, and picks the approximation; at least once",
        when.larger_than_one_by_one,
        "aten/src/ATen/native/LinearAlgebra.cpp: mexp_impl",
        confidence="low",
    ),
    Rule(
        "aten::_ctc_loss",
        SyncKind.D2H_COPY,
        "one per length tensor on the device",
        when.ctc_lengths,
        "aten/src/ATen/native/LossCTC.cpp",
        confidence="medium",
        overload="Tensor",
    ),
    Rule(
        "aten::mode",
        SyncKind.DYNAMIC_OUTPUT_SIZE,
        "slices of more than 2,048 elements go through Thrust, one by one",
        when.mode_of_long_slices,
        "aten/src/ATen/native/cuda/TensorModeKernel.cpp: mode_kernel_impl, "
        "TensorModeKernel.cu: ModeImpl, calculate_mode",
        confidence="medium",
        doubt="7 to 9 times for each slice of more than 2,048 elements; whether Thrust waits at "
        "the end of a copy and a sort depends on its release",
    ),
    Rule(
        "aten::nanmedian",
        SyncKind.SCALAR_READ,
        "of all elements: the position of the middle one is read",
        when.not_empty,
        "aten/src/ATen/native/cuda/Sorting.cpp: median_impl, sorted[k]; pytorch#134819",
        confidence="low",
        overload="default",
        doubt="0 or 1 times a call; newer sources leave the position on the device",
    ),
    # Sparse
    *(
        Rule(
            op,
            SyncKind.DYNAMIC_OUTPUT_SIZE,
            "always",
            when.always(1),
            "sparse ops read nnz",
            confidence="low",
        )
        for op in ("aten::_coalesce", "aten::to_sparse", "aten::_to_sparse")
    ),
    *CHECK_RULES,
)


def rules_for(op: str, overload: str, version: Version) -> tuple[Rule, ...]:
    """The rules of one overload that hold in this torch version (major, minor)."""
    return tuple(
        rule
        for rule in RULES
        if rule.op == op
        and rule.overload in (None, overload)
        and (rule.until is None or version < rule.until)
    )


def running_torch_version() -> Version:
    """(major, minor) of the torch that is imported."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)
