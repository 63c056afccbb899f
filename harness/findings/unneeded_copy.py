"""A copy between host and device that nobody uses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.rule import Advice, Rule, Spot

if TYPE_CHECKING:
    from harness.findings.statement import Statement
    from harness.record.audit_report import Site


_TO_HOST = frozenset({"d2h_copy", "scalar_read"})


def _is_unused(site: Site, statement: Statement | None) -> bool:
    """Whether each result was seen to go away unread, or the source shows that it is."""
    if site.unread_per_step and site.unread_per_step == site.count_per_step:
        return True
    return site.kind in _TO_HOST and _is_dropped(site, statement)


def _is_dropped(site: Site, statement: Statement | None) -> bool:
    """Whether the copy's result is dropped, or bound to a name that is never read."""
    if statement is None or statement.function is None or site.count_per_step == 0:
        return False
    node = statement.node
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and _copies_alone(node.value)
    if not isinstance(node, ast.Assign) or not _copies_alone(node.value):
        return False
    names = {t.id for t in node.targets if isinstance(t, ast.Name)}
    return len(names) == len(node.targets) and not names & statement.names_read_after()


def _copies_alone(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("cpu", "to", "tolist", "numpy", "item")
    )


def _without(statement: Statement | None) -> str:
    if statement is None:
        return "# delete the copy"
    node = statement.node
    alone = isinstance(node, ast.Expr | ast.Assign) and _copies_alone(node.value)
    return f"# delete{'' if alone else ' the copy in'}: {statement.text()}"


def _advise(spot: Spot) -> Advice:
    return Advice(
        "The copy makes the host wait, and its result is never read.",
        (_without(spot.statement),),
        "It may be there for its wait, to time a step; then say so with torch.cuda.synchronize().",
        confidence="high" if all(site.unread_per_step for site in spot.sites) else "medium",
    )


RULE = Rule(
    kind="unneeded-copy",
    sites=_TO_HOST | {"pageable_h2d", "blocking_pinned_h2d"},
    advise=_advise,
    claims=_is_unused,
)
