"""A single value read by the host: a loss, a norm, a branch, a log line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from harness.findings.rule import Advice, Rule, Spot
from harness.findings.statement import call_name, expression, receiver

if TYPE_CHECKING:
    from harness.findings.statement import Statement

_READS = ("item", "float", "int", "bool", "tolist")
_WRITERS = frozenset({"print", "write", "debug", "info", "warning", "error", "set_postfix"})
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
        return _print(statement, "Formatting a tensor copies its values to the host one by one.")
    if "found_inf_read" in kinds:
        return Advice(
            "The gradient scaler reads whether a gradient overflowed before it lets the optimizer "
            "step.",
            ("torch.optim.AdamW(..., fused=True)  # or SGD, Adam: takes found_inf on the device",),
            "bfloat16 needs no scaler at all.",
        )
    if kinds <= {"bool_branch"} or _decides(statement):
        return _branch(statement)
    if _is_printed(statement):
        return _print(statement)
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


def _print(
    statement: Statement | None,
    why: str = "The host waits for everything queued before it can write this line.",
) -> Advice:
    return Advice(
        why,
        ("if step % 100 == 0:", f"    {_text(statement, 'print(...)')}"),
        "Printing once in many steps costs nothing.",
    )


def _is_printed(statement: Statement | None) -> bool:
    """Whether the value becomes text right here, which no device tensor can."""
    if statement is None:
        return False
    node = statement.node
    called = call_name(node.value) if isinstance(node, ast.Expr) else None
    return called in _WRITERS or any(isinstance(e, ast.JoinedStr) for e in statement.expressions())


def _decides(statement: Statement | None) -> bool:
    """Whether Python goes one way or another by a value that this statement reads."""
    node = statement.node if statement is not None else None
    if not isinstance(node, ast.If | ast.While | ast.Assert):
        return False
    return any(call_name(part) in _READS for part in ast.walk(node.test) if _is_expr(part))


def _is_expr(node: ast.AST) -> TypeGuard[ast.expr]:
    return isinstance(node, ast.expr)


def _branch(statement: Statement | None) -> Advice:
    node = statement.node if statement is not None else None
    test = ast.unparse(node.test) if isinstance(node, ast.If | ast.Assert) else None
    last = node.body[-1] if isinstance(node, ast.If) and not node.orelse else None
    host = "# a length or count that follows from shapes: keep it as a host number"
    if isinstance(node, ast.Assert) or isinstance(last, ast.Raise):
        assert isinstance(node, ast.If | ast.Assert)
        host = "# raise where the loss is logged: if failed: ..."
        chosen = f"failed |= {_failure(node)}  # a flag on the device"
    elif isinstance(node, ast.If) and isinstance(last, ast.Break | ast.Return | ast.Continue):
        turn, asked = _turn(statement), f"({test})" if isinstance(node.test, ast.BoolOp) else test
        chosen = f"if {turn} % 8 == 7 and {asked}: ...  # in every eighth turn"
        host = "# long turns: copy it with non_blocking=True, and read it a turn later"
    elif isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name):
        name, value = last.targets[0].id, ast.unparse(last.value)
        chosen = f"{name} = torch.where({test}, {value}, {name})  # both sides are computed"
    else:
        chosen = "# torch.where where a tensor depends on it; both sides are computed then"
    return Advice(
        f"Python asks for the value of {f'`{test}`' if test else 'a tensor'}, so the host waits "
        "for all that is queued.",
        (chosen, host),
        "A branch that saves far more device work than the wait costs is right as it is.",
        confidence="medium",
    )


def _failure(node: ast.If | ast.Assert) -> str:
    """What is true on the device where the check fails."""
    test = node.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated, test = True, test.operand
    else:
        negated = False
    text = ast.unparse(test)
    if negated == isinstance(node, ast.Assert):
        return text
    return f"~{text}" if isinstance(test, ast.Call | ast.Name) else f"~({text})"


def _turn(statement: Statement | None) -> str:
    loop = statement.loops[-1] if statement is not None and statement.loops else None
    if isinstance(loop, ast.For):
        names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
        if isinstance(loop.target, ast.Name) and names[0] != "_":
            return names[0]
        if call_name(loop.iter) == "enumerate":
            return names[0]
    return "turn"


def _read(statement: Statement | None, *, implicit: bool) -> Advice:
    if implicit:
        return Advice(
            "A device tensor stands where an op takes a number, so that torch reads it.",
            ("# pass the number the tensor was made from, or use an overload that takes a tensor",),
            _LATER,
        )
    lines = ["# read it once per logging interval"]
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
