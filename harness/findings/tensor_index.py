"""A device tensor as an index or slice bound: a view needs the number, so the host reads it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import expression
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement


def _advise(location: Location) -> Advice:
    if any(site.kind == SyncKind.SLICE_BOUND_READ for site in location.sites):
        return bounds_advice(location.statement)
    rewritten = None if location.statement is None else location.statement.rewritten(_gather)
    return Advice(
        "A 0-dim index makes a view, whose offset the host must know; a 1-d index is a gather.",
        (rewritten or "row = table.index_select(0, index[None])[0]",),
        "A counter that lives on the host anyway is free: index with the Python number.",
    )


def _gather(node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Name):
        return None
    if not isinstance(node.ctx, ast.Load):
        return None
    table, index = ast.unparse(node.value), node.slice.id
    return expression(f"{table}.index_select(0, {index}[None])[0]")


def bounds_advice(statement: Statement | None) -> Advice:
    """What to write where slice bounds are device tensors."""
    why = "Both bounds of a slice are read from the device, one after the other."
    unless = "A single slice per step costs one sync."
    names = _bound_names(statement)
    if statement is None or not names:
        return Advice(why, ("bounds = offsets.tolist()  # once, then Python numbers",), unless)
    name = names[0]

    def on_host(node: ast.expr) -> ast.expr | None:
        is_it = isinstance(node, ast.Name) and node.id == name
        return expression("bounds") if is_it else None

    after = statement.rewritten(on_host)
    return Advice(why, (f"bounds = {name}.tolist()  # once per step", after or "..."), unless)


def _bound_names(statement: Statement | None) -> list[str]:
    if statement is None:
        return []
    return [
        part.value.id
        for node in statement.expressions()
        if isinstance(node, ast.Slice)
        for bound in (node.lower, node.upper)
        if bound is not None
        for part in ast.walk(bound)
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)
    ]


RULE = Rule(
    kind="tensor-index",
    advise=_advise,
)
