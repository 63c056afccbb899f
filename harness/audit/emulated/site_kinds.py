"""Kinds of syncs that need the source around the line to be recognised.

The dispatcher knows *how* the host waited (a read, a dynamic size, a copy). Whether it polled
experts, read once per parameter or checked an argument follows from the lines around it.
"""

from __future__ import annotations

import ast
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from harness.boundary.bounded_reads import source_lines
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.audit.frames import Place, Point

LIBRARY_KINDS: tuple[tuple[str, str, SyncKind], ...] = (
    # (part of the file's path, pattern of the function's name, kind)
    ("torch/distributions/", "", SyncKind.ARGUMENT_VALIDATION),
    ("torch/nn/functional.py", r"^gaussian_nll_loss$", SyncKind.ARGUMENT_VALIDATION),
    ("torch/functional.py", r"^(istft|stft)$", SyncKind.ARGUMENT_VALIDATION),
    ("torch/nn/utils/clip_grad.py", "", SyncKind.ERROR_CHECK_READ),
    ("torch/optim/", r"^_get_value$", SyncKind.OPTIMIZER_STEP_COUNTER),
    ("torch/amp/grad_scaler.py", r"_maybe_opt_step", SyncKind.FOUND_INF_READ),
    ("torch/_tensor_str.py", "", SyncKind.PRINT_TENSOR),
)
"""Library lines whose purpose is known."""

_POLLS = (SyncKind.SCALAR_READ, SyncKind.BOOL_BRANCH, SyncKind.DYNAMIC_OUTPUT_SIZE)
_READS = (SyncKind.SCALAR_READ, SyncKind.BOOL_BRANCH, SyncKind.IMPLICIT_SCALAR_ARG)
_EXPERTS = re.compile(r"expert|moe|rout|topk|top_k|\bgate", re.IGNORECASE)
_EXPERTS_IN_BODY = re.compile(r"expert|moe|rout", re.IGNORECASE)
"""Narrower: a loop over layers may hold a gated MLP, and one over batches a top-5 accuracy."""
_PARAMETERS = re.compile(r"param|\bgrads?\b|\.grad\b", re.IGNORECASE)


@lru_cache(maxsize=4096)
def kind_in_library(point: Point | None, kind: SyncKind) -> SyncKind:
    """The kind that the library line gives to a read, or `kind` itself."""
    if point is None or kind not in (*_READS, SyncKind.D2H_COPY):
        return kind
    file = point.code.co_filename.replace("\\", "/")
    for part, function, known in LIBRARY_KINDS:
        if part in file and (not function or re.search(function, point.code.co_qualname)):
            return known
    return kind


def refine(kind: SyncKind, place: Place, *, repeats: bool, same_input_in_modules: bool) -> SyncKind:
    """The kind of a site, given its line and the loops around it.

    `repeats`: it happens more than once a step, which a read in a loop over batches does not.
    `same_input_in_modules`: the same values were worked on in several modules of one step.
    """
    loops = enclosing_loops(place.file, place.line)
    if loops and repeats and kind in _POLLS:
        over = " ".join(loop.over for loop in loops)
        if kind == SyncKind.SCALAR_READ and _PARAMETERS.search(over):
            return SyncKind.PER_PARAM_SCALAR_READ
        # Of the function no more than its own name: a whole model has experts somewhere.
        function = place.function.rpartition("<locals>.")[2]
        if _EXPERTS.search(f"{over} {function}") or _EXPERTS_IN_BODY.search(loops[-1].text):
            return SyncKind.EXPERT_POLL
    if kind == SyncKind.DYNAMIC_OUTPUT_SIZE and same_input_in_modules:
        return SyncKind.PER_LAYER_REBUILD
    return kind


class Loop(NamedTuple):
    """A loop or comprehension of a file."""

    first: int
    last: int
    over: str
    """`target in iterated`, or what a `while` tests."""
    text: str
    """The whole of it."""


@cache
def _loops_of(file: str) -> tuple[Loop, ...]:
    """Each loop of a file with the lines of its body, outer ones before those inside them."""
    source = "".join(source_lines(file))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    loops = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            over = [node.test] if isinstance(node, ast.While) else [node.target, node.iter]
            first, last = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            if isinstance(node, ast.While):
                first = node.lineno
            header = " in ".join(ast.unparse(part) for part in over)
            loops.append(Loop(first, last, header, ast.unparse(node)))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            over_all = " ".join(
                f"{ast.unparse(generator.target)} in {ast.unparse(generator.iter)}"
                for generator in node.generators
            )
            last = node.end_lineno or node.lineno
            loops.append(Loop(node.lineno, last, over_all, ast.unparse(node)))
    return tuple(loops)


def enclosing_loops(file: str, line: int) -> tuple[Loop, ...]:
    """The loops around a line, outermost first; empty without source."""
    return tuple(loop for loop in _loops_of(file) if loop.first <= line <= loop.last)
