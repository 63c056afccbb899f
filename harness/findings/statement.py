"""The statement at a line, and how it reads with a part of it replaced."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from harness.boundary.bounded_reads import source_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_JUMPS = (ast.Break, ast.Continue, ast.Pass, ast.Raise, ast.Return)
_READS_ALL = frozenset({"eval", "exec", "locals", "vars"})
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith)


@dataclass(frozen=True)
class Statement:
    """One statement of a source file; of a compound one, its header."""

    node: ast.stmt
    function: Function | None
    loops: tuple[ast.For | ast.While, ...]
    """Loops around it, outermost first."""

    def expressions(self) -> Iterator[ast.expr]:
        """Every expression in it, the body of a compound statement left out."""
        for field, value in ast.iter_fields(self.node):
            if field in ("body", "orelse", "finalbody", "handlers"):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from (n for n in ast.walk(part) if isinstance(n, ast.expr))

    def text(self) -> str:
        """The statement as one line of source."""
        return _header(self.node)

    def rewritten(self, change: Callable[[ast.expr], ast.expr | None]) -> str | None:
        """The statement with expressions replaced as `change` says; `None` if it replaces none."""
        rewriter = _Rewriter(change)
        fresh = ast.parse(ast.unparse(self.node)).body[0]
        changed = rewriter.visit(fresh)
        return _header(changed) if rewriter.changes else None

    def names_read_after(self) -> frozenset[str]:
        """Names that may be read after this statement: later in the function, anywhere inside its
        loops or in a function within it, and by others where a name is global."""
        if self.function is None:
            return frozenset()
        own = self.node
        here, end = (own.lineno, own.col_offset), (own.end_lineno or own.lineno, own.end_col_offset)
        first = (self.loops[0].lineno, 0) if self.loops else end
        read: set[str] = set()
        for node in ast.walk(self.function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                read.update(node.names)
            elif isinstance(node, Function | ast.Lambda) and node is not self.function:
                read.update(_names(node, ast.Load))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                at = (node.lineno, node.col_offset)
                if node.id in _READS_ALL:
                    read |= _names(self.function, ast.Store)
                if at >= end or first <= at < here:
                    read.add(node.id)
        return frozenset(read)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, context)}


class _Rewriter(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.expr], ast.expr | None]) -> None:
        self._change = change
        self.changes = 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            new = self._change(node)
            if new is not None:
                self.changes += 1
                return ast.copy_location(new, node)
        visited: ast.AST = self.generic_visit(node)
        return visited


def _header(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text.partition("\n")[0] if isinstance(node, _COMPOUND) else " ".join(text.split())


@cache
def statement_at(file: str, line: int) -> Statement | None:
    """The innermost statement that holds this line; `None` without source."""
    try:
        tree = ast.parse("".join(source_lines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The last two: source that is nested too deep for Python to read.
        return None
    return _find(tree, line, None, ())


def _find(
    parent: ast.AST, line: int, function: Function | None, loops: tuple[ast.For | ast.While, ...]
) -> Statement | None:
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", line)
        if not first <= line <= last:
            continue
        if isinstance(node, Function):
            return _find(node, line, node, ())
        inner = (*loops, node) if isinstance(node, ast.For | ast.While) else loops
        deeper = _find(node, line, function, inner)
        if deeper is not None:
            # Of `if done.all(): break` it is the header that computes something.
            if isinstance(node, _COMPOUND) and isinstance(deeper.node, _JUMPS):
                return deeper if deeper.node.lineno > first else Statement(node, function, loops)
            return deeper
        return Statement(node, function, loops) if isinstance(node, ast.stmt) else None
    return None


def call_name(node: ast.expr) -> str | None:
    """Last part of what is called: `item` for `x.sum().item()`; `None` for no call."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def receiver(node: ast.expr) -> ast.expr | None:
    """`x` of `x.item()`, or of `float(x)`; `None` where there is none."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        return node.func.value
    return node.args[0] if node.args else None


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "np", "numpy", "math")


def expression(text: str) -> ast.expr:
    """Source text as an expression, to put into a statement."""
    return ast.parse(text, mode="eval").body
