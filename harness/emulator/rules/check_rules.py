"""Ops that read the device to check an argument or a result."""

from __future__ import annotations

from harness.emulator.rules import conditions as when
from harness.emulator.tensors.op_facts import Rule
from harness.record.sync_kinds import SyncKind

CHECK_RULES: tuple[Rule, ...] = (
    Rule(
        "aten::_linalg_check_errors",
        SyncKind.ERROR_CHECK_READ,
        "always",
        when.always(1),
        "aten/src/ATen/native/BatchLinearAlgebra.cpp: infos.any().item()",
    ),
    *(
        Rule(
            op,
            SyncKind.ERROR_CHECK_READ,
            "drivers check inside the op, where the matrix has elements",
            when.not_empty,
            "aten/src/ATen/native/BatchLinearAlgebra.cpp",
            confidence="medium",
        )
        for op in ("aten::_linalg_eigh", "aten::linalg_eig", "aten::linalg_lstsq")
    ),
    *(
        Rule(
            op,
            SyncKind.ERROR_CHECK_READ,
            "the matrix has elements: convergence, unless by gesvd or eigh, and then errors",
            syncs,
            "aten/src/ATen/native/cuda/linalg/BatchLinearAlgebraLib.cpp: "
            "_check_gesvdj_convergence; BatchLinearAlgebra.cpp: _linalg_check_errors",
        )
        for op, syncs in (
            ("aten::_linalg_svd", when.singular_values),
            ("aten::linalg_pinv", when.pseudo_inverse),
        )
    ),
    *(
        Rule(
            op,
            SyncKind.ERROR_CHECK_READ,
            "check_errors is asked for",
            when.asks_for_check,
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
    *(
        Rule(
            op,
            SyncKind.ERROR_CHECK_READ,
            "the matrix has elements",
            when.not_empty,
            "aten/src/ATen/native/BatchLinearAlgebra.cpp: _linalg_check_errors inside the op",
            confidence="medium",
            until=until,
        )
        # torch 2.14 has `cholesky` under its name in `linalg` only.
        for op, until in (("aten::cholesky", (2, 14)), ("aten::cholesky_inverse", None))
    ),
    *(
        Rule(
            "aten::normal",
            SyncKind.ARGUMENT_VALIDATION,
            "std is a tensor, checked twice",
            when.always(2),
            "aten/src/ATen/native/DistributionTemplates.h; pytorch#186508",
            confidence="medium",
            overload=overload,
        )
        for overload in ("Tensor_Tensor", "float_Tensor")
    ),
)
