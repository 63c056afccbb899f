"""A single value read by the host: a loss, a norm, a branch, a log line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from harness.findings.effects import CALCULATIONS, bound, effects, may_be_discarded
from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import call_name, expression, receiver
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement

_READS = ("item", "float", "int", "bool", "tolist")
_WRITERS = frozenset({"print", "write", "debug", "info", "warning", "error", "set_postfix"})
_LATER = (
    "A read costs nothing where the next blocking call would wait as long instead, such as at the "
    "end of a step that must wait anyway."
)


def _advise(location: Location) -> Advice:
    kinds = {site.kind for site in location.sites}
    statement = location.statement
    if SyncKind.PER_PARAM_SCALAR_READ in kinds:
        return _per_parameter(statement)
    if SyncKind.PRINT_TENSOR in kinds:
        return _print(statement, "Formatting a tensor copies its values to the host one by one.")
    if SyncKind.FOUND_INF_READ in kinds:
        return Advice(
            "The gradient scaler reads whether a gradient overflowed before it lets the optimizer "
            "step.",
            ("torch.optim.AdamW(..., fused=True)  # or SGD, Adam: takes found_inf on the device",),
            "bfloat16 needs no scaler at all.",
        )
    if kinds <= {SyncKind.BOOL_BRANCH} or _decides(statement):
        return _branch(statement)
    if _is_printed(statement):
        return _print(statement)
    return _read(statement, implicit=SyncKind.IMPLICIT_SCALAR_ARG in kinds)


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
        "One read of the total at the end costs one sync.",
    )


def _print(
    statement: Statement | None,
    why: str = "The host waits for everything queued before it can write this line.",
) -> Advice:
    return Advice(why, _rarely(statement), "Printing once in many steps costs next to nothing.")


def _rarely(statement: Statement | None) -> tuple[str, ...]:
    """The text is made in one step of many, and all else that the line does in each."""
    if statement is None:
        return ("if step % 100 == 0:", "    print(...)")
    node = statement.node
    writes = isinstance(node, ast.Expr) and call_name(node.value) in _WRITERS
    kept = list(effects(node, CALCULATIONS | _WRITERS))
    names, rewritten = bound(statement, kept)
    if not kept and (writes or isinstance(node, ast.Assign | ast.Return)):
        return ("if step % 100 == 0:", f"    {statement.text()}")
    if not writes or rewritten is None:
        return (f"# make the text in every 100th step, and keep the rest of: {statement.text()}",)
    every = tuple(f"{name} = {text}  # in every step" for name, text in names)
    return (*every, "if step % 100 == 0:", f"    {rewritten}")


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
        chosen = _in_some_turns(statement, node)
        host = "# long iterations: copy it with non_blocking=True, and read it one iteration later"
    elif (where := _where(node)) is not None:
        chosen = where
    else:
        chosen = "# torch.where where a tensor depends on it; both sides are computed then"
    return Advice(
        f"Python asks for the value of {f'`{test}`' if test else 'a tensor'}, so the host waits "
        "for all that is queued.",
        (chosen, host),
        "A branch that saves far more device work than the sync costs is right as it is.",
        confidence="medium",
    )


def _where(node: ast.stmt | None) -> str | None:
    """`x = torch.where(test, value, x)` for a body that sets one name to a value that may as well
    be computed and not used."""
    if not isinstance(node, ast.If) or node.orelse or len(node.body) != 1:
        return None
    only = node.body[0]
    if not isinstance(only, ast.Assign) or not isinstance(only.targets[0], ast.Name):
        return None
    if not may_be_discarded(only.value):
        return None
    name, value, test = only.targets[0].id, ast.unparse(only.value), ast.unparse(node.test)
    return f"{name} = torch.where({test}, {value}, {name})  # both sides are computed"


def _in_some_turns(statement: Statement | None, node: ast.If) -> str:
    turn = _turn(statement)
    if any(True for _ in effects(node.test, CALCULATIONS)):
        return (
            f"# call in every iteration what the test calls; look at its result if {turn} % 8 == 7"
        )
    test = ast.unparse(node.test)
    asked = f"({test})" if isinstance(node.test, ast.BoolOp) else test
    return f"if {turn} % 8 == 7 and {asked}: ...  # in every eighth iteration"


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


RULE = Rule(kind="scalar-read", advise=_advise)
