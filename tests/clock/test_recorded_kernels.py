"""Ops of a recorded trace, worked out again from their shapes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from harness.clock.costs import catalogue_costs
from harness.clock.gpus import find_gpu
from harness.clock.recorded_kernels import class_errors, fitted_shares, recorded_ops
from harness.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

BF16 = "c10::BFloat16"


def op(number: int, name: str, dims: Any, types: Any, concrete: Any) -> dict[str, Any]:
    shapes = {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
    return {"cat": "cpu_op", "name": name, "args": {"External id": number, **shapes}}


def kernel(number: int, duration_us: float) -> dict[str, Any]:
    return {"cat": "kernel", "dur": duration_us, "args": {"External id": number}}


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def trace(path: Path, factor: float = 1.0) -> Path:
    """Two ops whose kernels took `factor` times what the catalogue says."""
    priced = catalogue_costs(find_gpu("H100"))
    events = [
        op(1, "aten::addmm", [[1024], [4096, 4096], [4096, 1024], [], []],
           [BF16, BF16, BF16, "Scalar", "Scalar"], ["", "", "", "1", "1"]),
        op(2, "aten::_softmax", [[4096, 4096], [], []], [BF16, "Scalar", "Scalar"],
           ["", "-1", "False"]),
        op(3, "custom::op", [[4]], [BF16], [""]),
        op(4, "aten::view", [[4], []], [BF16, "ScalarList"], ["", "[2, 2]"]),
        kernel(3, 5.0),
        kernel(4, 5.0),
        kernel(99, 5.0),
    ]  # fmt: skip
    write(path, [*events, kernel(1, 1.0), kernel(2, 1.0)])
    times = [priced.kernel_ns(found.work) / 1e3 * factor for found in recorded_ops(path)]
    return write(path, [*events, kernel(1, times[0]), kernel(2, times[1])])


def test_ops_are_found_with_their_work(tmp_path: Path) -> None:
    found = recorded_ops(trace(tmp_path / "t.json"))
    assert [one.work.kind for one in found] == ["gemm", "softmax"]
    assert found[0].work.flops == 2 * 4096 * 4096 * 1024


@pytest.mark.parametrize("factor", [1.0, 1.8, 0.25])
def test_the_error_is_the_factor_either_way(tmp_path: Path, factor: float) -> None:
    ops = recorded_ops(trace(tmp_path / "t.json", factor))
    errors = class_errors(ops, catalogue_costs(find_gpu("H100")))
    assert [error.kind for error in errors][-1] == "all"
    for error in errors:
        assert error.median_factor == pytest.approx(max(factor, 1 / factor), rel=1e-3)
        assert error.within_two == (1.0 if 0.5 <= factor <= 2 else 0.0)


def test_a_fit_undoes_the_factor(tmp_path: Path) -> None:
    costs = catalogue_costs(find_gpu("H100"))
    shares = fitted_shares(recorded_ops(trace(tmp_path / "t.json", 2.0)), costs)
    assert shares["softmax"] == pytest.approx(costs.efficiency["softmax"] / 2, rel=1e-3)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="cannot be read as a trace"):
        recorded_ops(path)
