"""A small tensor made on the host in each step and copied to the device, which blocks the host."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.effects import CALCULATIONS, bound, effects
from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import call_name, expression, receiver
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement
    from harness.record.audit_report import Site

_MAKERS = frozenset(
    {
        "tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "arange", "full", "zeros",
        "ones", "linspace", "eye",
    }
)  # fmt: skip
_MAKING = _MAKERS | CALCULATIONS | {"device", "list", "pin_memory", "range", "sorted", "tuple"}


def _is_built(site: Site, statement: Statement | None) -> bool:
    """Whether the line makes the tensor, or moves an attribute of its module."""
    if statement is None:
        return False
    if site.op in ("aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::where"):
        return True
    if _moved_attribute(statement) is not None and site.module is not None:
        return True
    return any(call_name(node) in _MAKERS for node in statement.expressions())


def _moved_attribute(statement: Statement | None) -> str | None:
    """`mean` of `self.mean.to(...)`."""
    if statement is None:
        return None
    for node in statement.expressions():
        value = receiver(node) if call_name(node) in ("to", "cuda") else None
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == _self_of(statement):
            return value.attr
    return None


def _self_of(statement: Statement) -> str | None:
    """Name of the first argument of the function, as a method has it."""
    arguments = statement.function.args.args if statement.function is not None else []
    return arguments[0].arg if arguments else None


def _pinned(statement: Statement | None) -> str | None:
    """The statement with data that is computed in each step copied from pinned memory."""
    if statement is None:
        return None

    def change(node: ast.expr) -> ast.expr | None:
        if call_name(node) not in ("tensor", "as_tensor", "asarray", "from_numpy"):
            return None
        if not isinstance(node, ast.Call) or not any(_is_computed(a) for a in node.args):
            return None
        device = next((ast.unparse(k.value) for k in node.keywords if k.arg == "device"), None)
        if device is None:
            return None
        node.keywords = [k for k in node.keywords if k.arg != "device"]
        text = f"{ast.unparse(node)}.pin_memory().to({device}, non_blocking=True)"
        return expression(text)

    return statement.rewritten(change)


def _once(statement: Statement | None) -> tuple[str, ...]:
    """The tensor made outside the step, and all else that the line does inside it as before."""
    if statement is None:
        return ("# make the tensor once, outside the step",)
    node = statement.node
    if not any(True for _ in effects(node, _MAKING)):
        return (f"# once, outside the step: {statement.text()}",)
    made = next((part for part in statement.expressions() if _only_makes(part)), None)
    if made is None:
        return (
            f"# make the tensor once, outside the step, and keep the rest of: {statement.text()}",
        )
    ((name, text),), rewritten = bound(statement, [made])
    return (f"{name} = {text}  # once, outside the step", rewritten or statement.text())


def _only_makes(node: ast.expr) -> bool:
    calls = {call_name(part) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return isinstance(node, ast.Call) and bool(calls & _MAKERS) and calls <= _MAKING


def _is_computed(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _advise(location: Location) -> Advice:
    attribute = _moved_attribute(location.statement)
    if attribute is not None:
        return Advice(
            f"`self.{attribute}` is a plain attribute, so it stays on the host and is copied in "
            "every forward.",
            (
                f'self.register_buffer("{attribute}", {attribute}, persistent=False)  # __init__',
                f"# forward: use self.{attribute} as it is",
            ),
            "A module that runs once per step and overlaps with the previous step loses little.",
        )
    pinned = _pinned(location.statement)
    if pinned is not None:
        return Advice(
            "The tensor is made on the host in each step, and its copy blocks the host.",
            (pinned,),
            "A few bytes once a step cost little; what differs in each step has to be copied.",
        )
    return Advice(
        "The tensor is made on the host each time, and its copy blocks the host.",
        (
            *_once(location.statement),
            "# a single number: torch.full((), value, device=device) needs no sync",
        ),
        "Data that differs in every step has to be copied: pin it and pass non_blocking=True.",
    )


RULE = Rule(
    kind="host-built-tensor",
    sites=frozenset({SyncKind.PAGEABLE_H2D}),
    advise=_advise,
    claims=_is_built,
)
