"""The device asked again and again in a loop: once per expert, per document, per layer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.findings.rule import Advice, Location, Rule
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement


_UNLESS = "With two or three large experts the reads hide behind the matmuls."


def _advise(location: Location) -> Advice:
    if location.statement is None or not location.statement.loops:
        return Advice(
            "The same small read is made again and again inside one call, and the host waits each "
            "time.",
            ("# gather what is asked for into one tensor, and read it once: values.tolist()",),
            _UNLESS,
            confidence="medium",
        )
    choices, loop = _polled(location.statement)
    return Advice(
        f"Each turn of `for {loop}` asks the device which rows belong to it, so the host waits "
        "once or more per expert and layer.",
        (
            f"expert_of_row, order = torch.sort({choices}.flatten(), stable=True)",
            "experts = torch.arange(num_experts, device=order.device)",
            "ends = torch.searchsorted(expert_of_row, experts, right=True)",
            "# rows in `order` are grouped by expert: one grouped matmul with offs=ends.int(),",
            "# or one ends.tolist() and Python slices",
        ),
        _UNLESS,
    )


def _polled(statement: Statement | None) -> tuple[str, str]:
    """(tensor compared with the loop's variable, what is looped over), as far as they are read."""
    if statement is None or not statement.loops:
        return "top_k_index", "expert in experts"
    loop = statement.loops[-1]
    if not isinstance(loop, ast.For):
        return "top_k_index", ast.unparse(loop.test)
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for node in ast.walk(loop):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            left, right = node.left, node.comparators[0]
            if isinstance(right, ast.Name) and right.id in targets:
                return ast.unparse(left), f"{_target(loop)} in {ast.unparse(loop.iter)}"
    return "top_k_index", f"{_target(loop)} in {ast.unparse(loop.iter)}"


def _target(loop: ast.For) -> str:
    return ast.unparse(loop.target).strip("()")


RULE = Rule(
    kind="polling-loop",
    advise=_advise,
    companions=frozenset(
        {
            SyncKind.SCALAR_TENSOR_INDEX,
            SyncKind.BOOL_MASK_INDEX,
            SyncKind.DYNAMIC_OUTPUT_SIZE,
            SyncKind.BOOL_BRANCH,
        }
    ),
    by_function=True,
)
