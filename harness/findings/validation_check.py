"""Arguments or results checked by reading them: useful once, not in every step."""

from __future__ import annotations

import ast

from harness.findings.rule import Advice, Rule, Spot
from harness.findings.statement import call_name, expression
from harness.record.sync_kinds import SyncKind

_EX = frozenset({"cholesky", "inv", "solve", "lu_factor", "ldl_factor"})


def _advise(spot: Spot) -> Advice:
    unless = "Checks are cheap insurance while the code is new; switch them off in long runs."
    if any(site.kind == SyncKind.ARGUMENT_VALIDATION for site in spot.sites):
        return Advice(
            "Library code reads the argument to check it.",
            _unvalidated(spot),
            unless,
        )

    def unchecked(node: ast.expr) -> ast.expr | None:
        name = call_name(node)
        if name not in _EX or not isinstance(node, ast.Call):
            return None
        called = ast.unparse(node.func)
        arguments = ast.unparse(node)[len(called) :]
        return expression(f"{called}_ex{arguments}[0]")

    rewritten = None if spot.statement is None else spot.statement.rewritten(unchecked)
    return Advice(
        "The routine reads its error code after each call.",
        (rewritten or "# use the *_ex variant, and look at its info tensor once in a while",),
        unless,
    )


def _unvalidated(spot: Spot) -> tuple[str, ...]:
    if "distributions" in (spot.site.library or ""):
        return ("torch.distributions.Distribution.set_default_validate_args(False)",)
    calls = spot.statement.expressions() if spot.statement is not None else ()
    name = next((n for n in map(call_name, calls) if n is not None), "the function")
    return (f"# write out what {name} computes: its check is not to be switched off",)


RULE = Rule(
    kind="validation-check",
    advise=_advise,
)
