"""A copy between host and device whose result is never used."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.effects import effects
from harness.findings.rule import Advice, Location, Rule, leave_out
from harness.findings.statement import call_name
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement
    from harness.record.audit_report import Site


_COPIES = ("cpu", "to", "tolist", "numpy", "item")
_TO_HOST = frozenset({SyncKind.D2H_COPY, SyncKind.SCALAR_READ})


def _is_unused(site: Site, statement: Statement | None) -> bool:
    """Whether each result was freed unread, or the source shows that it is not used."""
    if site.unread_per_step and site.unread_per_step == site.count_per_step:
        return True
    if site.kind not in _TO_HOST or site.library is not None or site.count_per_step == 0:
        return False
    # `model.cpu()` moves a module in place; only the emulator can tell it from a tensor's.
    sure = site.unread_per_step is not None or _called(statement) in ("item", "tolist", "numpy")
    return sure and _is_dropped(statement)


def _called(statement: Statement | None) -> str | None:
    """Name of the copy or read that is all that the statement gives, such as `cpu`."""
    node = None if statement is None else statement.node
    if not isinstance(node, ast.Expr | ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    return call_name(node.value) if isinstance(node.value.func, ast.Attribute) else None


def _is_dropped(statement: Statement | None) -> bool:
    """Whether a copy is all that the statement gives, and it is dropped or bound to a name that
    nothing reads."""
    if statement is None or statement.function is None or _called(statement) not in _COPIES:
        return False
    node = statement.node
    if not isinstance(node, ast.Assign):
        return True
    names = {t.id for t in node.targets if isinstance(t, ast.Name)}
    return len(names) == len(node.targets) and not names & statement.names_read_after()


def _without(location: Location) -> tuple[str, ...]:
    """What is left of the line: all that it does besides the copy."""
    statement = location.statement
    if statement is None or location.in_library or not _is_dropped(statement):
        return (leave_out(location, "the copy"),)
    node = statement.node
    assert isinstance(node, ast.Expr | ast.Assign)
    kept = tuple(f"{ast.unparse(part)}  # the call alone" for part in effects(node.value))
    return kept or (f"# delete: {statement.text()}",)


def _advise(location: Location) -> Advice:
    return Advice(
        "The copy makes the host wait, and its result is never read.",
        _without(location),
        "Where the copy is there to make the host wait, as to time a step, write "
        "torch.cuda.synchronize() instead.",
        confidence="high" if all(site.unread_per_step for site in location.sites) else "medium",
    )


RULE = Rule(
    kind="unneeded-copy",
    sites=_TO_HOST | {SyncKind.PAGEABLE_H2D, SyncKind.BLOCKING_PINNED_H2D},
    advise=_advise,
    claims=_is_unused,
)
