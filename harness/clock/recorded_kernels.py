"""Kernel times of real traces beside those of the cost model: how far off is it, by class of ops?

Reads Kineto traces recorded with shapes. Each op that launched kernels is called again on `meta`
tensors of the recorded shapes, which gives its result's shape, and so its work.
"""

from __future__ import annotations

import ast
import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.boundary.bounded_reads import gunzip, read_regular
from harness.clock.op_work import Work, work_of
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.clock.costs import Costs

_MAX_TRACE_BYTES = 512 << 20
_DTYPES = {
    "c10::BFloat16": torch.bfloat16, "c10::Half": torch.float16, "float": torch.float32,
    "double": torch.float64, "long int": torch.int64, "long": torch.int64, "int": torch.int32,
    "short": torch.int16, "signed char": torch.int8, "unsigned char": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class RecordedOp:
    """One op of a trace with the time of its kernels."""

    work: Work
    device_us: float


@dataclass(frozen=True)
class ClassError:
    """How far the model is off for one class of ops in one trace."""

    kind: str
    num_ops: int
    recorded_ms: float
    modelled_ms: float
    median_factor: float
    """Median over ops of max(modelled / recorded, recorded / modelled)."""
    within_two: float
    """Share of ops whose factor is at most 2."""


def recorded_ops(path: str | Path) -> list[RecordedOp]:
    """The ops of a trace whose work is known. Raises `UsageError` where the file is no trace."""
    source = Path(path)
    try:
        content = read_regular(source, _MAX_TRACE_BYTES)
        if source.suffix == ".gz":
            content = gunzip(content, _MAX_TRACE_BYTES)
        events = json.loads(content)["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read as a trace ({error}); give a Kineto file."
        ) from error
    ops = {
        event["args"]["External id"]: event
        for event in events
        if event.get("cat") == "cpu_op" and "External id" in event.get("args", {})
    }
    kernel_us: dict[int, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "kernel":
            kernel_us[event.get("args", {}).get("External id", -1)] += event["dur"]
    found = []
    for number, duration_us in kernel_us.items():
        work = _work(ops[number]) if number in ops else None
        if work is not None and work.kind != "view":
            found.append(RecordedOp(work, duration_us))
    return found


def class_errors(ops: Iterable[RecordedOp], costs: Costs) -> tuple[ClassError, ...]:
    """The errors by class, the class with most recorded time first, and `all` at the end."""
    by_kind: dict[str, list[RecordedOp]] = defaultdict(list)
    for op in ops:
        by_kind[op.work.kind].append(op)
        by_kind["all"].append(op)
    errors = [_error(kind, group, costs) for kind, group in by_kind.items()]
    return tuple(sorted(errors, key=lambda e: (e.kind == "all", -e.recorded_ms)))


def fitted_shares(ops: Iterable[RecordedOp], costs: Costs) -> dict[str, float]:
    """For each class, its share times the median of modelled over recorded time."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for op in ops:
        ratios[op.work.kind].append(costs.kernel_ns(op.work) / 1e3 / op.device_us)
    return {
        kind: costs.efficiency[kind] * statistics.median(values) for kind, values in ratios.items()
    }


def _error(kind: str, ops: Sequence[RecordedOp], costs: Costs) -> ClassError:
    modelled = [costs.kernel_ns(op.work) / 1e3 for op in ops]
    factors = [
        max(model_us / op.device_us, op.device_us / model_us) if model_us else float("inf")
        for model_us, op in zip(modelled, ops, strict=True)
    ]
    return ClassError(
        kind=kind,
        num_ops=len(ops),
        recorded_ms=sum(op.device_us for op in ops) / 1e3,
        modelled_ms=sum(modelled) / 1e3,
        median_factor=statistics.median(factors),
        within_two=sum(factor <= 2 for factor in factors) / len(factors),
    )


def _work(event: dict[str, Any]) -> Work | None:
    """The work of one recorded op; `None` where it cannot be called again."""
    details = event["args"]
    dims, types = details.get("Input Dims"), details.get("Input type")
    concrete = details.get("Concrete Inputs")
    name = event["name"]
    if dims is None or types is None or concrete is None or not name.startswith("aten::"):
        return None
    strides = details.get("Input Strides") or [None] * len(dims)
    try:
        args = [_argument(*given) for given in zip(dims, types, concrete, strides, strict=True)]
    except (RuntimeError, ValueError, SyntaxError):
        return None
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    for overload_name in packet.overloads() if packet is not None else ():
        work = _work_of_overload(getattr(packet, overload_name), args)
        if work is not None:
            return work
    return None


def _work_of_overload(overload: Any, args: list[Any]) -> Work | None:
    """The work if this overload takes these arguments; traces list keyword arguments in order."""
    names = [argument.name for argument in overload._schema.arguments]
    num_positional = sum(not a.kwarg_only for a in overload._schema.arguments)
    if "out" in names or len(args) > len(names):
        return None
    positional = args[:num_positional]
    keywords = dict(zip(names[num_positional:], args[num_positional:], strict=False))
    try:
        return work_of(overload, positional, keywords, overload(*positional, **keywords))
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _argument(dims: Any, kind: str, concrete: str, strides: Any) -> Any:
    if kind in _DTYPES:
        tensor = torch.empty(dims, dtype=_DTYPES[kind], device="meta")
        return tensor.as_strided(dims, strides) if strides else tensor
    if kind == "TensorList":
        return [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in dims]
    if concrete == "":
        return None
    return ast.literal_eval(concrete)
