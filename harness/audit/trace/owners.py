"""What caused a sync: op, Python line, module, phase, and in backward the forward line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from harness.audit.trace.columns import UNKNOWN
from harness.audit.trace.forward_ops import ForwardLinks, is_autograd
from harness.audit.trace.stacks import Frame, FrameKind, RowsByThread, Stack, enclosing_stacks

if TYPE_CHECKING:
    from harness.audit.trace.columns import Spans, Trace
    from harness.audit.trace.waits import Waits
    from harness.record.audit_report import AuditPhase

OwnerKind = Literal["op", "python", "annotation", "context", "none"]

_NODE = "autograd::engine::evaluate_function: "
_STEP = re.compile(r"ProfilerStep\s*#\d+")
_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)")
_MODULE = re.compile(r"nn\.Module: (?P<name>.+?)(?:_\d+)?")
_SITE_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB = re.compile(r".*/lib/python\d[^/]*/(?!site-packages|dist-packages)|<frozen |<string>")
_PLUMBING_FILES = frozenset({"contextlib.py", "functools.py", "threading.py", "runpy.py"})
_LIBRARIES = frozenset(
    {"accelerate", "apex", "bitsandbytes", "colossalai", "datasets", "deepspeed", "diffusers"}
    | {"fairscale", "fbgemm_gpu", "flash_attn", "ignite", "lightning", "megatron", "numpy", "peft"}
    | {"multiprocessing", "pytorch_lightning", "sglang", "tensordict", "timm", "tokenizers", "trl"}
    | {"torchaudio", "torchdata", "torchmetrics", "torchrec", "torchtitan", "torchtune", "triton"}
    | {"torchvision", "transformer_engine", "transformers", "unsloth", "vllm", "xformers"}
)
"""Packages whose frames are no user code."""


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A Python frame. `line` is where the function begins: profilers do not record the call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"

    @property
    def package(self) -> str:
        """Top-level package by path, or the file name of a script."""
        return self.file.split("/", 1)[0]

    @property
    def in_library(self) -> bool:
        """Whether it belongs to a package that users install."""
        return self.package in _LIBRARIES


@dataclass(frozen=True, slots=True)
class Owner:
    """What made the host wait. Equal owners are one site."""

    kind: OwnerKind
    op: str
    op_chain: tuple[str, ...] = ()
    phase: AuditPhase = "unknown"
    cause: PythonLine | None = None
    """Innermost frame outside torch."""
    user: PythonLine | None = None
    """Innermost frame outside torch and known libraries."""
    module: str | None = None
    autograd_node: str | None = None
    forward_op: str | None = None
    context: str | None = None
    """Annotation around it, or what ran before it where nothing encloses it."""


def python_line(name: str) -> PythonLine | None:
    """`path(line): function`, shortened to the part below `site-packages`."""
    match = _FRAME.fullmatch(name)
    if match is None:
        return None
    file = _SITE_PACKAGES.sub("", match["file"].replace("\\", "/"))
    return PythonLine(file, int(match["line"]), match["function"])


def _outside_torch(line: PythonLine) -> bool:
    return not (
        line.package == "torch"
        or line.file in _PLUMBING_FILES
        or _STDLIB.match(line.file)
        or line.file.startswith("<")
    )


def is_step(name: str) -> bool:
    """Whether an annotation marks a profiler step."""
    return _STEP.fullmatch(name) is not None


def user_annotations(stack: Stack) -> list[Frame]:
    """Enclosing annotations, profiler steps left out."""
    return [f for f in stack if f.kind is FrameKind.ANNOTATION and not is_step(f.name)]


def module_frames(stack: Stack) -> list[Frame]:
    """Enclosing `nn.Module` calls, outermost first."""
    return [f for f in stack if f.kind is FrameKind.PYTHON and _MODULE.match(f.name)]


def _ops(stack: Stack) -> list[Frame]:
    # Traces of 2021 file profiler steps under the ops.
    return [f for f in stack if f.kind is FrameKind.OP and not is_step(f.name)]


def _python(trace: Trace, stack: Stack) -> list[PythonLine]:
    """Python frames, outermost first."""
    names = [f.name for f in stack if f.kind is FrameKind.PYTHON]
    if not names:
        recorded = [int(trace.ops.stack[f.row]) for f in stack if f.kind is FrameKind.OP]
        innermost = next((number for number in reversed(recorded) if number != UNKNOWN), UNKNOWN)
        if innermost != UNKNOWN:
            names = trace.stacks[innermost].split(";")[::-1]
    lines = (python_line(name.strip()) for name in names)
    return [line for line in lines if line is not None]


def _phase(stack: Stack, ops: list[Frame], lines: list[PythonLine]) -> AuditPhase:
    nodes = [f.name[len(_NODE) :] for f in ops if f.name.startswith(_NODE)]
    if nodes:
        return "recompute" if nodes[-1].startswith("CheckpointFunction") else "backward"
    if any(is_autograd(f.name) for f in ops):
        return "backward"
    notes = [f.name for f in user_annotations(stack)]
    # Traces of 2021 file the optimizer's mark under the ops.
    notes += [f.name for f in ops]
    if any(note.startswith(("Optimizer.step#", "Optimizer.zero_grad#")) for note in notes):
        return "optimizer"
    if any("torch/optim/" in line.file for line in lines):
        return "optimizer"
    if any(note.startswith("enumerate(DataLoader)") for note in notes):
        return "data"
    words = " ".join(f.name.lower() for f in user_annotations(stack))
    if module_frames(stack) or "forward" in words:
        return "forward"
    return "backward" if "backward" in words else "unknown"


def _module(stack: Stack) -> str | None:
    matches = (_MODULE.fullmatch(frame.name) for frame in module_frames(stack))
    names = [match["name"] for match in matches if match is not None]
    return ".".join(names) or None


def _resolve(trace: Trace, stack: Stack, api: str) -> Owner:
    ops = _ops(stack)
    lines = _python(trace, stack)
    cause = next((line for line in reversed(lines) if _outside_torch(line)), None)
    user = next((x for x in reversed(lines) if _outside_torch(x) and not x.in_library), None)
    notes = user_annotations(stack)
    nodes = [f.name[len(_NODE) :] for f in ops if f.name.startswith(_NODE)]
    chain = tuple(f.name for f in ops if not is_autograd(f.name))
    kind: OwnerKind = "none"
    if ops:
        kind = "op"
    elif cause is not None:
        kind = "python"
    elif notes:
        kind = "annotation"
    return Owner(
        kind=kind,
        op=chain[-1] if chain else (ops[-1].name if ops else api),
        op_chain=chain,
        phase=_phase(stack, ops, lines),
        cause=cause,
        user=user,
        module=_module(stack),
        autograd_node=nodes[-1] if nodes else None,
        context=notes[-1].name if notes else None,
    )


def find_owners(trace: Trace, waits: Waits) -> list[Owner]:
    """The owner of each sync."""
    known: dict[tuple[str, tuple[tuple[FrameKind, str], ...], int], Owner] = {}
    owners: list[Owner] = []
    for stack, call in zip(waits.stacks, waits.call.tolist(), strict=True):
        api = trace.names[trace.calls.name[call]]
        recorded = next((int(trace.ops.stack[f.row]) for f in reversed(_ops(stack))), UNKNOWN)
        key = (api, tuple((f.kind, f.name) for f in stack), recorded)
        owner = known.get(key)
        if owner is None:
            owner = known[key] = _resolve(trace, stack, api)
        owners.append(owner)
    _add_forward(trace, waits, owners)
    _add_context(trace, waits, owners)
    return owners


def _add_forward(trace: Trace, waits: Waits, owners: list[Owner]) -> None:
    """Give each sync in backward the Python line and module of its forward op."""
    missing = [
        index
        for index, owner in enumerate(owners)
        if owner.phase in ("backward", "recompute") and owner.cause is None
    ]
    if not missing:
        return
    links = ForwardLinks(trace)
    rows = [forward_row(links, waits.stacks[index]) for index in missing]
    linked = [(index, row) for index, row in zip(missing, rows, strict=True) if row is not None]
    if not linked:
        return
    row = np.array([row for _, row in linked], dtype=np.int64)
    stacks = enclosing_stacks(
        trace, trace.ops.thread[row], trace.ops.start[row], trace.ops.end[row]
    )
    for (index, _), stack in zip(linked, stacks, strict=True):
        forward = _resolve(trace, stack, "")
        owners[index] = replace(
            owners[index],
            cause=forward.cause,
            user=forward.user,
            module=owners[index].module or forward.module,
            forward_op=forward.op_chain[0] if forward.op_chain else None,
        )


def forward_row(links: ForwardLinks, stack: Stack) -> int | None:
    """Row in `Trace.ops` of the forward op of the innermost backward node around a sync."""
    for frame in reversed(_ops(stack)):
        if is_autograd(frame.name):
            row = links.forward_of(frame.row)
            if row is not None:
                return row
    return None


def _add_context(trace: Trace, waits: Waits, owners: list[Owner]) -> None:
    """Where nothing encloses a sync, name what ran last on its thread."""
    bare = [index for index, owner in enumerate(owners) if owner.kind == "none"]
    if not bare:
        return
    tables = [_EndedSpans(trace, table) for table in (trace.annotations, trace.ops)]
    for index in bare:
        thread, time = int(waits.thread[index]), int(waits.start[index])
        names = (table.last_before(thread, time) for table in tables)
        name = next((name for name in names if name is not None), None)
        if name is not None:
            owners[index] = replace(owners[index], kind="context", context=f"after {name}")


class _EndedSpans:
    """Spans of one table by thread and end, profiler steps left out."""

    def __init__(self, trace: Trace, table: Spans) -> None:
        self._trace, self._table = trace, table
        steps = np.array([is_step(name) for name in trace.names], dtype=np.bool_)
        rows = np.flatnonzero(~steps[table.name]) if len(table) else np.zeros(0, dtype=np.int64)
        self._rows = rows[np.argsort(table.end[rows], kind="stable")]
        self._by_thread = RowsByThread(table.thread[self._rows])

    def last_before(self, thread: int, time: int) -> str | None:
        """Name of the span of the thread that ended last before `time`."""
        rows = self._rows[self._by_thread[thread]]
        position = int(np.searchsorted(self._table.end[rows], time, side="right"))
        return self._trace.names[self._table.name[rows[position - 1]]] if position else None
