"""How the count of a site grows with layers and experts, from audits of small models."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.record.audit_report import AuditReport, Site

Identity = tuple[object, ...]


@dataclass(frozen=True)
class Sizes:
    """What one small model has."""

    layers: int
    experts: int | None = None
    """Experts of a layer, each hit in every step; `None` for a dense model."""


@dataclass(frozen=True)
class Growth:
    """Syncs per step = `constant + L * (per_layer + per_expert * E_hit)`."""

    constant: Fraction
    per_layer: Fraction
    per_expert: Fraction = Fraction(0)

    def __str__(self) -> str:
        if self.per_layer and self.per_expert:
            grows = f"L*({self.per_layer} + {_times(self.per_expert, 'E_hit')})"
        elif self.per_expert:
            grows = _times(self.per_expert, "L*E_hit")
        elif self.per_layer:
            grows = _times(self.per_layer, "L")
        else:
            return str(self.constant)
        return f"{self.constant} + {grows}" if self.constant else grows


def fit_growth(counts: Mapping[Sizes, float]) -> Growth:
    """The form that three models (or two dense ones) show: one base, one with more layers, and one
    with more experts. Exact where the count is of that form."""
    base, *others = counts
    exact = {sizes: Fraction(count).limit_denominator(1000) for sizes, count in counts.items()}
    deeper = next(sizes for sizes in others if sizes.layers != base.layers)
    per_layer = (exact[deeper] - exact[base]) / (deeper.layers - base.layers)
    constant = exact[base] - base.layers * per_layer
    wider = next((sizes for sizes in others if sizes.experts != base.experts), None)
    if wider is None or wider.experts is None or base.experts is None:
        return Growth(constant, per_layer)
    per_expert = (exact[wider] - exact[base]) / (base.layers * (wider.experts - base.experts))
    return Growth(constant, per_layer - per_expert * base.experts, per_expert)


def with_growth(report: AuditReport, small: Mapping[Sizes, AuditReport]) -> AuditReport:
    """The report with the growth of each site, and of all together in a note.

    A site of the report that no small model shows keeps `None`.
    """
    counts: dict[Identity, dict[Sizes, float]] = {}
    totals = {sizes: audit.syncs_per_step or 0.0 for sizes, audit in small.items()}
    for sizes, audit in small.items():
        for site in audit.sites:
            known = counts.setdefault(_identity(site), dict.fromkeys(small, 0.0))
            known[sizes] += site.count_per_step * site.syncs_per_call
    sites = tuple(
        msgspec.structs.replace(site, growth=str(fit_growth(found)))
        if (found := counts.get(_identity(site)))
        else site
        for site in report.sites
    )
    note = f"Syncs per step grow as {fit_growth(totals)} (L layers, E_hit experts hit in a layer)."
    return msgspec.structs.replace(report, sites=sites, notes=(note, *report.notes))


def _identity(site: Site) -> Identity:
    return site.op, site.kind, site.phase, site.file, site.line, site.library


def _times(factor: Fraction, name: str) -> str:
    return name if factor == 1 else f"{factor}*{name}"
