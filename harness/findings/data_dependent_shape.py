"""An output whose size depends on data: the host waits for the size before it can allocate."""

from __future__ import annotations

import ast

from harness.findings.rule import Advice, Location, Rule
from harness.findings.statement import call_name, expression, receiver
from harness.record.sync_kinds import SyncKind

_WITH_SIZE = {
    "repeat_interleave": "output_size=total",
    "one_hot": "num_classes=num_classes",
}
_UNLESS = (
    "Where leaving out rows saves more than a sync costs, compute the indices once and reuse them."
)


def _advise(location: Location) -> Advice:
    op = location.site.op.removeprefix("aten::")
    if any(site.kind == SyncKind.BOOL_MASK_INDEX for site in location.sites):
        return _mask(location)
    return Advice(
        f"The size of the output of `{op}` depends on its data, so the host waits for it.",
        _sized(location, op),
        _UNLESS,
    )


def _mask(location: Location) -> Advice:
    if location.site.op == "aten::masked_scatter_backward":
        return Advice(
            "The gradient of masked_scatter selects by the mask, and waits for the number of rows.",
            ("# positions from the collator: h = h.index_copy(0, positions, features)",),
            _UNLESS,
        )
    again = "; the gradient does it again" if _in_backward(location) else ""
    why = f"A boolean mask is turned into indices, whose number the host waits for{again}."
    written = _written_by_mask(location)
    if written is not None:
        return Advice(
            why,
            (written, "# mask[..., None] where the tensor has dimensions that the mask lacks"),
            "A Python number in its place, x[mask] = 0.0, needs no sync.",
        )
    mask = "mask"
    if location.statement is not None:
        mask = next(
            (
                ast.unparse(n.slice)
                for n in location.statement.expressions()
                if isinstance(n, ast.Subscript) and not isinstance(n.slice, ast.Slice)
            ),
            mask,
        )
    if not mask.isidentifier():
        mask = f"({mask})"
    return Advice(
        why,
        (
            f"loss = (values * {mask}).sum() / {mask}.sum()  # weight instead of selecting",
            f"rows = {mask}.nonzero()  # or once per step: integer indexing needs no sync",
        ),
        _UNLESS,
    )


def _in_backward(location: Location) -> bool:
    return any(site.phase == "backward" for site in location.sites)


def _written_by_mask(location: Location) -> str | None:
    """`x = torch.where(mask, value, x)` for `x[mask] = value`."""
    node = location.statement.node if location.statement is not None else None
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Tuple | ast.Slice):
        return None
    x, mask, value = (ast.unparse(part) for part in (target.value, target.slice, node.value))
    return f"{x} = torch.where({mask}, {value}, {x})"


def _sized(location: Location, op: str) -> tuple[str, ...]:
    statement = location.statement

    def change(node: ast.expr) -> ast.expr | None:
        name = call_name(node)
        if name == "bincount":
            value = receiver(node)
            source = "x" if value is None else ast.unparse(value)
            return expression(
                f"torch.zeros(num_bins, dtype=torch.long, device={source}.device)"
                f".scatter_add_(0, {source}, torch.ones_like({source}))"
            )
        if name == "nonzero" and (value := receiver(node)) is not None:
            return expression(f"torch.nonzero_static({ast.unparse(value)}, size=num_rows)")
        if name in _WITH_SIZE and isinstance(node, ast.Call):
            return expression(f"{ast.unparse(node)[:-1]}, {_WITH_SIZE[name]})")
        return None

    rewritten = None if statement is None else statement.rewritten(change)
    if rewritten is not None:
        return (rewritten,)
    if op in ("_unique2", "unique_consecutive", "unique_dim"):
        return ("# count on the host, where the collator has the data, and pass the result along",)
    if op == "histc":
        return ("torch.histc(x, bins, min=0, max=bins - 1)  # a given range is not read",)
    return ("# give the size from the host, or use a variant of fixed size",)


RULE = Rule(
    kind="data-dependent-shape",
    advise=_advise,
)
