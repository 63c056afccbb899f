"""Side effects that must remain where advice removes a read, a copy or a print.

Advice may drop what makes the host wait. A call on the same line that may do more than give a
value, such as an update in place or the clipping of gradients, is kept.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.statement import call_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.findings.statement import Statement

CONVERSIONS = frozenset(
    {
        "bfloat16", "bool", "clone", "contiguous", "cpu", "cuda", "detach", "double", "flatten",
        "float", "half", "int", "item", "long", "numpy", "reshape", "squeeze", "to", "tolist",
        "unsqueeze", "view",
    }
)  # fmt: skip
"""Calls that give a tensor's values in another form, and do nothing else."""
CALCULATIONS = CONVERSIONS | {
    "abs", "all", "any", "argmax", "exp", "format", "get_last_lr", "isfinite", "isinf", "isnan",
    "join", "len", "log", "max", "mean", "memory_allocated", "min", "norm", "perf_counter", "repr",
    "round", "sqrt", "std", "str", "sum", "time", "var",
}  # fmt: skip
"""Calls without side effects: one whose result is not used need not be made."""
_UPDATES = frozenset(
    {"add", "append", "backward", "extend", "pop", "step", "update", "write", "zero_grad"}
)
_AS_A_WHOLE = (
    ast.BoolOp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.ListComp, ast.SetComp,
)  # fmt: skip
"""Expressions that may evaluate their parts several times or not at all."""
_EFFECTS = (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)


def effects(node: ast.AST | None, harmless: frozenset[str] = CONVERSIONS) -> Iterator[ast.expr]:
    """The outermost expressions in `node` that may have side effects.

    Any call may have them, except those of a name in `harmless`.
    """
    if node is None or isinstance(node, ast.Lambda):
        return
    if (isinstance(node, ast.Call) and call_name(node) not in harmless) or isinstance(
        node, _EFFECTS
    ):
        yield node
    elif isinstance(node, _AS_A_WHOLE):
        if any(True for part in ast.iter_child_nodes(node) for _ in effects(part, harmless)):
            yield node
    else:
        for part in ast.iter_child_nodes(node):
            yield from effects(part, harmless)


def is_only(statement: Statement | None, *calls: str) -> bool:
    """Whether a statement makes one of `calls` and does nothing else, so that it may go whole."""
    node = None if statement is None else statement.node
    return (
        isinstance(node, ast.Expr)
        and call_name(node.value) in calls
        and not any(True for _ in effects(node.value, CONVERSIONS | frozenset(calls)))
    )


def updates(statement: Statement) -> bool:
    """Whether a statement surely changes something in place, such as `total += x`."""
    return isinstance(statement.node, ast.AugAssign) or any(
        _is_update(call_name(node)) for node in statement.expressions()
    )


def may_be_discarded(node: ast.expr) -> bool:
    """Whether `node` calls only methods of tensors, none in place, so that it may run unused."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return not any(
        _is_update(call_name(call)) or not isinstance(call.func, ast.Attribute) for call in calls
    )


def _is_update(name: str | None) -> bool:
    return name is not None and (
        name in _UPDATES or (name.endswith("_") and not name.endswith("__"))
    )


def bound(statement: Statement, kept: list[ast.expr]) -> tuple[list[tuple[str, str]], str | None]:
    """[(name, what it stands for)], and the statement with these names in place of `kept`."""
    names = ["value" if number == 0 else f"value_{number + 1}" for number in range(len(kept))]
    texts = {ast.unparse(node): name for name, node in zip(names, kept, strict=True)}

    def change(node: ast.expr) -> ast.expr | None:
        name = texts.get(ast.unparse(node))
        return None if name is None else ast.Name(name, ast.Load())

    return [(name, text) for text, name in texts.items()], statement.rewritten(change)
