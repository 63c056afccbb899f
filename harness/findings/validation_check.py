"""Arguments or results checked by reading them: useful once, not in every step."""

from __future__ import annotations

import ast

from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import call_name, expression
from harness.record.sync_kinds import SyncKind

_EX = frozenset({"cholesky", "inv", "solve", "lu_factor", "ldl_factor"})


def _advise(location: Location) -> Advice:
    unless = "Checks are cheap insurance while the code is new; switch them off in long runs."
    if any(site.kind == SyncKind.ARGUMENT_VALIDATION for site in location.sites):
        return Advice(
            "Library code reads the argument to check it.",
            _unvalidated(location),
            unless,
        )

    def unchecked(node: ast.expr) -> ast.expr | None:
        name = call_name(node)
        if name not in _EX or not isinstance(node, ast.Call):
            return None
        called = ast.unparse(node.func)
        arguments = ast.unparse(node)[len(called) :]
        return expression(f"{called}_ex{arguments}[0]")

    rewritten = None if location.statement is None else location.statement.rewritten(unchecked)
    return Advice(
        "The routine reads its error code after each call.",
        (rewritten or "# use the *_ex variant, and look at its info tensor once in a while",),
        unless,
    )


def _unvalidated(location: Location) -> tuple[str, ...]:
    if "distributions" in (location.site.library or ""):
        return ("torch.distributions.Distribution.set_default_validate_args(False)",)
    calls = location.statement.expressions() if location.statement is not None else ()
    name = next((n for n in map(call_name, calls) if n is not None), "the function")
    return (f"# write out what {name} computes: its check cannot be switched off",)


RULE = Rule(
    kind="validation-check",
    advise=_advise,
)
