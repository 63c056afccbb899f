"""From what an op did to what sort of wait it is: kinds that need the source around the line.

The dispatcher knows *how* the host waited (a read, a dynamic size, a copy). Whether it polled
experts, read once per parameter or checked an argument is told by the lines around it.
"""

from __future__ import annotations

import ast
import linecache
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.audit.frames import Place, Point

LIBRARY_KINDS: tuple[tuple[str, str, str], ...] = (
    # (part of the file's path, pattern of the function's name, kind)
    ("torch/distributions/", "", "argument_validation"),
    ("torch/nn/functional.py", r"^gaussian_nll_loss$", "argument_validation"),
    ("torch/functional.py", r"^(istft|stft)$", "argument_validation"),
    ("torch/nn/utils/clip_grad.py", "", "error_check_read"),
    ("torch/optim/", r"^_get_value$", "optimizer_step_counter"),
    ("torch/amp/grad_scaler.py", r"_maybe_opt_step", "found_inf_read"),
    ("torch/_tensor_str.py", "", "print_tensor"),
)
"""Library lines whose purpose is known."""

_READS = ("scalar_read", "bool_branch", "implicit_scalar_arg")
_EXPERTS = re.compile(r"expert|moe|rout|topk|top_k|\bgate", re.IGNORECASE)
_PARAMETERS = re.compile(r"param|\bgrads?\b|\.grad\b", re.IGNORECASE)


@lru_cache(maxsize=4096)
def kind_in_library(point: Point | None, kind: str) -> str:
    """The kind that the library line gives to a read, or `kind` itself."""
    if point is None or kind not in (*_READS, "d2h_copy"):
        return kind
    file = point.code.co_filename.replace("\\", "/")
    for part, function, known in LIBRARY_KINDS:
        if part in file and (not function or re.search(function, point.code.co_qualname)):
            return known
    return kind


def refine(kind: str, place: Place, identifiers: str, same_input_in_modules: bool) -> str:
    """The kind of a site, given its line and the names that its function uses.

    `same_input_in_modules`: the same values were worked on in several modules of one step.
    """
    loops = enclosing_loops(place.file, place.line)
    polls = kind in ("scalar_read", "bool_branch", "dynamic_output_size")
    if loops and polls:
        around = f"{' '.join(loops)} {place.function} {identifiers}"
        if kind == "scalar_read" and _PARAMETERS.search(" ".join(loops)):
            return "per_param_scalar_read"
        if _EXPERTS.search(around):
            return "expert_poll"
    if kind == "dynamic_output_size" and same_input_in_modules:
        return "per_layer_rebuild"
    return kind


def identifiers_of(point: Point) -> str:
    """Names that the function of `point` uses, in one string."""
    code = point.code
    return " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))


@cache
def _loops_of(file: str) -> tuple[tuple[int, int, str], ...]:
    """(first line, last line, `target in iterated`) of each loop body in a file."""
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    loops = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            over = [node.test] if isinstance(node, ast.While) else [node.target, node.iter]
            first, last = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            if isinstance(node, ast.While):
                first = node.lineno
            loops.append((first, last, " in ".join(ast.unparse(part) for part in over)))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            over_all = " ".join(
                f"{ast.unparse(generator.target)} in {ast.unparse(generator.iter)}"
                for generator in node.generators
            )
            loops.append((node.lineno, node.end_lineno or node.lineno, over_all))
    return tuple(loops)


def enclosing_loops(file: str, line: int) -> tuple[str, ...]:
    """The loops around a line, as `target in iterated`; empty without source."""
    return tuple(over for first, last, over in _loops_of(file) if first <= line <= last)
