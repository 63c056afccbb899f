"""A single value read by the host: a loss, a norm, a branch, a log line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.audit.findings.rule import Advice, Rule, Spot
from harness.audit.findings.source import call_name, expression, receiver

if TYPE_CHECKING:
    from harness.audit.findings.source import Statement

_READS = ("item", "float", "int", "bool", "tolist")
_LATER = (
    "A read whose wait the next blocking call would inherit costs nothing, such as one at the end "
    "of a step that must wait anyway."
)


def _advise(spot: Spot) -> Advice:
    kinds = {site.kind for site in spot.sites}
    statement = spot.statement
    if "per_param_scalar_read" in kinds:
        return _per_parameter(statement)
    if "print_tensor" in kinds:
        return Advice(
            "Formatting a tensor copies its values to the host one by one.",
            ("if step % 100 == 0:", f"    {_text(statement, 'print(...)')}"),
            "Printing once in many steps costs nothing.",
        )
    if "found_inf_read" in kinds:
        return Advice(
            "The gradient scaler reads whether a gradient overflowed before it lets the optimizer "
            "step.",
            ("torch.optim.AdamW(..., fused=True)  # takes found_inf on the device",),
            "bfloat16 needs no scaler at all.",
        )
    if kinds <= {"bool_branch"}:
        return _branch(statement)
    return _read(statement, implicit="implicit_scalar_arg" in kinds)


def _per_parameter(statement: Statement | None) -> Advice:
    over = "model.parameters()"
    if statement is not None and statement.loops:
        loop = statement.loops[-1]
        if isinstance(loop, ast.For):
            over = ast.unparse(loop.iter)
    return Advice(
        "Each parameter's value is read by itself, so the host waits once per parameter.",
        (
            f"norms = torch._foreach_norm([p.grad for p in {over} if p.grad is not None])",
            "total = torch.linalg.vector_norm(torch.stack(norms))  # stays on the device",
        ),
        "One read of the total at the end costs one wait.",
    )


def _branch(statement: Statement | None) -> Advice:
    node = statement.node if statement is not None else None
    test = ast.unparse(node.test) if isinstance(node, ast.If | ast.Assert) else None
    last = node.body[-1] if isinstance(node, ast.If) and not node.orelse else None
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name):
        name, value = last.targets[0].id, ast.unparse(last.value)
        chosen = f"{name} = torch.where({test}, {value}, {name})  # both sides are computed"
    else:
        chosen = "# torch.where where a tensor depends on it; both sides are computed then"
    return Advice(
        f"Python asks for the value of {f'`{test}`' if test else 'a tensor'}, so the host waits "
        "for all that is queued.",
        (chosen, "# a length or count that follows from shapes: keep it as a host number"),
        "A branch that saves far more device work than the wait costs is right as it is.",
        confidence="medium",
    )


def _read(statement: Statement | None, *, implicit: bool) -> Advice:
    if implicit:
        return Advice(
            "A device tensor stands where an op takes a number, so that torch reads it.",
            ("# pass the number the tensor was made from, or use an overload that takes a tensor",),
            _LATER,
        )
    lines = ["# read once per logging interval:"]
    if statement is not None:
        kept = statement.rewritten(_kept_on_device)
        if kept is not None:
            lines.insert(0, kept)
    return Advice(
        "The host waits for everything queued before this one value.", tuple(lines), _LATER
    )


def _kept_on_device(node: ast.expr) -> ast.expr | None:
    if call_name(node) not in _READS:
        return None
    value = receiver(node)
    return None if value is None else expression(f"({ast.unparse(value)}).detach()")


def _text(statement: Statement | None, otherwise: str) -> str:
    return otherwise if statement is None else statement.text()


RULE = Rule(
    kind="scalar-read",
    sites=frozenset(
        {
            "scalar_read", "per_param_scalar_read", "bool_branch", "implicit_scalar_arg",
            "found_inf_read", "print_tensor",
        }
    ),
    advise=_advise,
)  # fmt: skip
