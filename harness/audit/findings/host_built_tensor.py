"""A small tensor made on the host in each step and copied to the device, which waits."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.audit.findings.rule import Advice, Rule, Spot
from harness.audit.findings.source import call_name, receiver

if TYPE_CHECKING:
    from harness.audit.findings.source import Statement
    from harness.audit.report import Site

_MAKERS = frozenset(
    {
        "tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "arange", "full", "zeros",
        "ones", "linspace", "eye",
    }
)  # fmt: skip


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
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "self":
            return value.attr
    return None


def _advise(spot: Spot) -> Advice:
    attribute = _moved_attribute(spot.statement)
    if attribute is not None:
        return Advice(
            f"`self.{attribute}` is a plain attribute, so it stays on the host and is copied in "
            "every forward.",
            (
                f'self.register_buffer("{attribute}", {attribute}, persistent=False)  # __init__',
                f"# forward: use self.{attribute} as it is",
            ),
            "A module that runs once per step and overlaps with the step before loses little.",
        )
    text = spot.statement.text() if spot.statement is not None else "the tensor"
    return Advice(
        "The tensor is made on the host and copied with a wait, each time.",
        (
            f"# once, outside the step: {text}",
            "# a single number: torch.full((), value, device=device) waits for nothing",
        ),
        "Data that differs in every step has to be copied: pin it and pass non_blocking=True.",
    )


RULE = Rule(
    kind="host-built-tensor",
    sites=frozenset({"pageable_h2d"}),
    advise=_advise,
    claims=_is_built,
)
