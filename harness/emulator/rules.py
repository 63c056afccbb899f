"""Which ops make the host wait on CUDA: the rules as data.

Each rule names an op, the condition under which it waits, how often it waits per call, the kind of
wait, the torch versions it holds for, and the evidence. CUDA is meant, not the CPU kernels that
compute the values here: ops that read on the CPU only (`one_hot` with `num_classes`,
`_assert_async`, `grouped_mm`, `embedding_renorm_`) have no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.emulator.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Callable

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Version = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """One reason why a call makes the host wait."""

    op: str
    """Dispatcher name without overload."""
    kind: str
    condition: str
    """When it waits, in words."""
    syncs: Callable[[Args, Kwargs], int]
    """Waits in one call with these arguments; 0 where the condition does not hold."""
    evidence: str
    """Source file or report it was read from."""
    confidence: str = "high"
    """`high`: source and an independent report; `medium`: source of unknown age; `low`: memory."""
    since: Version | None = None
    """First torch version (major, minor) it holds for."""
    until: Version | None = None
    """First torch version it no longer holds for."""
    overload: str | None = None
    """Only this overload; `None` for all."""


def _argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any = None) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs.get(name, default)


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _always(count: int) -> Callable[[Args, Kwargs], int]:
    def syncs(args: Args, kwargs: Kwargs) -> int:
        return count

    return syncs


def _first_on_device(count: int) -> Callable[[Args, Kwargs], int]:
    def syncs(args: Args, kwargs: Kwargs) -> int:
        return count if type(args[0]) is EmulatedTensor else 0

    return syncs


def _device_masks(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for i in args[1] if _is_mask(i) and type(i) is EmulatedTensor)


def _host_masks(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for i in args[1] if _is_mask(i) and type(i) is not EmulatedTensor)


def _host_indices(args: Args, kwargs: Kwargs) -> int:
    return sum(
        1
        for i in args[1]
        if i is not None and type(i) is not EmulatedTensor and not _is_mask(i) and i.numel() > 0
    )


def _becomes_masked_fill(args: Args, kwargs: Kwargs) -> bool:
    """Whether `x[mask] = number` takes the `masked_fill_` way, which expands no mask."""
    indices, value = args[1], args[2]
    accumulate = _argument(args, kwargs, 3, "accumulate", False)
    given = [index for index in indices if index is not None]
    return (
        not accumulate
        and value.numel() == 1
        and type(value) is not EmulatedTensor
        and len(given) == 1
        and _is_mask(given[0])
        and type(given[0]) is EmulatedTensor
    )


def _put_masks(args: Args, kwargs: Kwargs) -> int:
    return 0 if _becomes_masked_fill(args, kwargs) else _device_masks(args, kwargs)


def _put_host_value(args: Args, kwargs: Kwargs) -> int:
    if type(args[2]) is EmulatedTensor or _becomes_masked_fill(args, kwargs):
        return 0
    return 1


def _bincount(args: Args, kwargs: Kwargs) -> int:
    return 1 if args[0].dtype is torch.uint8 else 2


def _histc(args: Args, kwargs: Kwargs) -> int:
    low, high = _argument(args, kwargs, 2, "min", 0), _argument(args, kwargs, 3, "max", 0)
    return 2 if low == high else 0


def _repeats_without_size(args: Args, kwargs: Kwargs) -> int:
    return 2 if kwargs.get("output_size") is None else 0


def _device_value(args: Args, kwargs: Kwargs) -> int:
    return 1 if type(_argument(args, kwargs, 2, "value")) is EmulatedTensor else 0


def _device_fill(args: Args, kwargs: Kwargs) -> int:
    return 1 if type(_argument(args, kwargs, 3, "value")) is EmulatedTensor else 0


def _device_bounds(args: Args, kwargs: Kwargs) -> int:
    bounds = (_argument(args, kwargs, 0, "start"), _argument(args, kwargs, 1, "end"))
    return sum(1 for bound in bounds if type(bound) is EmulatedTensor)


def _isin_sorts(args: Args, kwargs: Kwargs) -> int:
    elements, tested = args[0], args[1]
    few = tested.numel() < 10 * elements.numel() ** 0.145
    return 0 if few or kwargs.get("assume_unique", False) else 2


def _asks_for_check(args: Args, kwargs: Kwargs) -> int:
    return 1 if kwargs.get("check_errors", False) else 0


def _one_hot_open(args: Args, kwargs: Kwargs) -> int:
    return 1 if _argument(args, kwargs, 1, "num_classes", -1) == -1 else 0


def _host_operand(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for a in args if isinstance(a, torch.Tensor) and type(a) is not EmulatedTensor)


def _ctc_lengths(args: Args, kwargs: Kwargs) -> int:
    return sum(1 for a in args[2:4] if type(a) is EmulatedTensor)


def _below_ampere(args: Args, kwargs: Kwargs) -> int:
    return 1 if torch.cuda.get_device_capability() < (8, 0) else 0


_NONZERO = "aten/src/ATen/native/cuda/Nonzero.cu: memcpy_and_sync of the count"
_INDEXING = "ATen/native/IndexingUtils.h expandTensors; pytorch#12461"
_PUT = "aten/src/ATen/native/TensorAdvancedIndexing.cpp; pytorch#57515, #61612, #62092"
_UNIQUE = "aten/src/ATen/native/cuda/UniqueCub.cu, Unique.cu"

RULES: tuple[Rule, ...] = (
    # Reads of device values by the host
    Rule(
        "aten::_local_scalar_dense",
        "scalar_read",
        "the tensor is on the device",
        _first_on_device(1),
        "aten/src/ATen/native/cuda/CUDAScalar.cu",
    ),
    Rule("aten::equal", "bool_branch", "always", _always(1), "tag data_dependent_output"),
    Rule("aten::allclose", "bool_branch", "always", _always(1), "tag data_dependent_output"),
    # Output size depends on the data
    Rule("aten::nonzero", "dynamic_output_size", "always", _always(1), _NONZERO),
    Rule("aten::argwhere", "dynamic_output_size", "always", _always(1), _NONZERO),
    Rule(
        "aten::index",
        "bool_mask_index",
        "one per boolean mask on the device",
        _device_masks,
        _INDEXING,
    ),
    Rule(
        "aten::index",
        "bool_mask_index",
        "a boolean mask on the host",
        _host_masks,
        "pytorch#156384",
        until=(2, 9),
    ),
    Rule(
        "aten::index",
        "pageable_h2d",
        "an integer index on the host is copied",
        _host_indices,
        _INDEXING,
        confidence="medium",
    ),
    *(
        rule
        for op in ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
        for rule in (
            Rule(
                op,
                "bool_mask_index",
                "one per device mask, unless one mask takes a host number (masked_fill)",
                _put_masks,
                _PUT,
            ),
            Rule(
                op,
                "pageable_h2d",
                "a host number assigned by integer index is copied",
                _put_host_value,
                "pytorch#186486, #188330",
                confidence="medium",
            ),
            Rule(
                op,
                "pageable_h2d",
                "an integer index on the host is copied",
                _host_indices,
                _INDEXING,
                confidence="medium",
            ),
        )
    ),
    Rule(
        "aten::masked_select",
        "bool_mask_index",
        "always",
        _always(1),
        "aten/src/ATen/native/cuda/IndexKernel.cpp",
    ),
    Rule(
        "aten::masked_scatter_backward",
        "bool_mask_index",
        "always",
        _always(1),
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp: masked_select of the gradient",
    ),
    *(
        Rule(
            op,
            "implicit_scalar_arg",
            "the value is a device tensor",
            _device_value,
            "aten/src/ATen/native/cuda/IndexKernel.cu masked_fill__cuda: value.item()",
            confidence="low",
            overload="Tensor",
        )
        for op in ("aten::masked_fill", "aten::masked_fill_")
    ),
    *(
        Rule(
            op,
            "implicit_scalar_arg",
            "the value is a device tensor",
            _device_fill,
            "aten/src/ATen/native/TensorAdvancedIndexing.cpp: index_fill_ of source.item()",
            confidence="medium",
            overload="int_Tensor",
        )
        for op in ("aten::index_fill", "aten::index_fill_")
    ),
    *(
        Rule(
            op,
            "implicit_scalar_arg",
            "one per bound that is a device tensor",
            _device_bounds,
            "aten/src/ATen/native/TensorFactories.cpp: linspace(start.item(), end.item(), ...)",
        )
        for op in ("aten::linspace", "aten::logspace")
    ),
    Rule(
        "aten::where",
        "pageable_h2d",
        "a 0-dim host tensor operand is copied",
        _host_operand,
        "aten/src/ATen/native/TensorCompare.cpp",
        confidence="medium",
        overload="self",
    ),
    *(
        Rule(op, "dynamic_output_size", "always", _always(1), _UNIQUE)
        for op in ("aten::_unique", "aten::_unique2", "aten::unique_consecutive")
    ),
    *(
        Rule(op, "dynamic_output_size", "always", _always(1), _UNIQUE, confidence="medium")
        for op in ("aten::unique_dim", "aten::unique_dim_consecutive")
    ),
    Rule(
        "aten::isin",
        "dynamic_output_size",
        "many test elements: both sides are made unique and sorted",
        _isin_sorts,
        "aten/src/ATen/native/TensorCompare.cpp isin_sorting: two at::_unique",
        confidence="medium",
        overload="Tensor_Tensor",
    ),
    Rule(
        "aten::bincount",
        "dynamic_output_size",
        "min and max are read, for uint8 only max",
        _bincount,
        "aten/src/ATen/native/cuda/SummaryOps.cu; unsloth-zoo#1248 measured 2",
    ),
    Rule(
        "aten::histc",
        "dynamic_output_size",
        "min == max, so the range is read",
        _histc,
        "aten/src/ATen/native/cuda/SummaryOps.cu",
    ),
    Rule(
        "aten::repeat_interleave",
        "dynamic_output_size",
        "tensor repeats without output_size",
        _repeats_without_size,
        "ATen/native/Repeat.h",
        overload="Tensor",
    ),
    Rule(
        "aten::one_hot",
        "dynamic_output_size",
        "no num_classes given",
        _one_hot_open,
        "aten/src/ATen/native/Onehot.cpp",
    ),
    Rule(
        "aten::_grouped_mm",
        "d2h_copy",
        "the fallback below capability 8.0 copies the offsets",
        _below_ampere,
        "ATen/native/GroupedMMUtils.h",
        confidence="medium",
    ),
    # Argument and error checks
    Rule(
        "aten::_linalg_check_errors",
        "error_check_read",
        "always",
        _always(1),
        "aten/src/ATen/native/BatchLinearAlgebra.cpp: infos.any().item()",
    ),
    *(
        Rule(
            op,
            "error_check_read",
            "drivers check inside the op",
            _always(1),
            "aten/src/ATen/native/BatchLinearAlgebra.cpp",
            confidence="medium",
        )
        for op in (
            "aten::_linalg_svd",
            "aten::_linalg_eigh",
            "aten::linalg_eig",
            "aten::linalg_lstsq",
        )
    ),
    *(
        Rule(
            op,
            "error_check_read",
            "check_errors is asked for",
            _asks_for_check,
            "aten/src/ATen/native/BatchLinearAlgebra.cpp: _linalg_check_errors inside the op",
            confidence="medium",
        )
        for op in (
            "aten::linalg_cholesky_ex",
            "aten::linalg_inv_ex",
            "aten::linalg_lu_factor_ex",
            "aten::linalg_ldl_factor_ex",
            "aten::_linalg_solve_ex",
        )
    ),
    Rule(
        "aten::cholesky",
        "error_check_read",
        "always",
        _always(1),
        "aten/src/ATen/native/BatchLinearAlgebra.cpp",
        confidence="medium",
    ),
    Rule(
        "aten::multinomial",
        "argument_validation",
        "probabilities are checked",
        _always(2),
        "pytorch#134818",
        until=(2, 6),
    ),
    *(
        Rule(
            "aten::normal",
            "argument_validation",
            "std is a tensor, checked twice",
            _always(2),
            "aten/src/ATen/native/DistributionTemplates.h; pytorch#186508",
            confidence="medium",
            overload=overload,
        )
        for overload in ("Tensor_Tensor", "float_Tensor")
    ),
    Rule(
        "aten::_ctc_loss",
        "d2h_copy",
        "one per length tensor on the device",
        _ctc_lengths,
        "aten/src/ATen/native/LossCTC.cpp",
        confidence="medium",
        overload="Tensor",
    ),
    Rule(
        "aten::mode",
        "dynamic_output_size",
        "always",
        _always(1),
        "aten/src/ATen/native/cuda/TensorModeKernel.cpp: memcpy_and_sync",
        confidence="medium",
    ),
    # Sparse
    *(
        Rule(
            op, "dynamic_output_size", "always", _always(1), "sparse ops read nnz", confidence="low"
        )
        for op in ("aten::_coalesce", "aten::to_sparse", "aten::_to_sparse")
    ),
)


def rules_for(op: str, overload: str, version: Version) -> tuple[Rule, ...]:
    """The rules of one overload that hold in this torch version (major, minor)."""
    return tuple(
        rule
        for rule in RULES
        if rule.op == op
        and rule.overload in (None, overload)
        and (rule.since is None or version >= rule.since)
        and (rule.until is None or version < rule.until)
    )


def running_torch_version() -> Version:
    """(major, minor) of the torch that is imported."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)
