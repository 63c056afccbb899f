"""Layers that look at the norm of what they get, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.findings.rule import Advice, Location, Rule
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from harness.findings.statement import Statement
    from harness.record.audit_report import Site


def _reads_a_norm(site: Site, statement: Statement | None) -> bool:
    return ".norm()" in (site.code or "")


def _advise(location: Location) -> Advice:
    return Advice(
        why="Each layer reads the norm of what it gets.",
        instead=("norms.append(x.norm())  # one read of all, once per logging interval",),
        unless="A model of few layers that each compute long.",
    )


RULE = Rule(
    kind="norm-read",
    sites=frozenset({SyncKind.SCALAR_READ}),
    advise=_advise,
    claims=_reads_a_norm,
)
