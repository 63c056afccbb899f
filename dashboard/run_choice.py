"""The runs of a store that filters keep, or one sentence that says which filter keeps none."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from dashboard.filters import Filters, plain_name
from harness.counts import counted
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.facets import Facets
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord

_MOST_CHOICES = 20


def choose_runs(found: Snapshot, filters: Filters) -> list[RunRecord]:
    """The runs that the filters keep, newest first.

    Raises `UsageError` where there is none: for a store without runs, a name that no run has, and
    filters that keep nothing together.
    """
    if not found.facets:
        raise UsageError(
            f"The store {found.root} has no run; measure with `gapless reproduce`, or name another."
        )
    check_names(found.facets, filters)
    records = found.select(filters)
    if not records:
        raise UsageError(_why_none(found.facets, filters))
    return records


def check_names(facets: Sequence[Facets], filters: Filters) -> None:
    """Raise `UsageError`, with the choices, for a name in the filters that no run has."""
    if not facets:
        return
    names = {
        "scenario": {one.scenario for one in facets},
        "model": {one.model for one in facets},
        "gpu": {one.gpu for one in facets},
        "fix": {fix for one in facets for fix in one.fixes},
        "source": {str(one.source) for one in facets},
        "run": {one.id for one in facets},
    }
    for filter_name, known in names.items():
        plain = {plain_name(name) for name in known}
        for name in getattr(filters, filter_name):
            if plain_name(name) not in plain:
                listed = sorted(known)[-_MOST_CHOICES:]
                more = ", ..." if len(known) > len(listed) else ""
                raise UsageError(
                    f"No run has the {filter_name} {name!r}; choose {', '.join(listed)}{more}."
                )


def _why_none(facets: Sequence[Facets], filters: Filters) -> str:
    """Adds one filter after the other, and names the first that keeps none of what was left."""
    tried, left = Filters(), list(facets)
    for field in fields(Filters):
        value = getattr(filters, field.name)
        if not value:
            continue
        tried = replace(tried, **{field.name: value})
        kept = [one for one in facets if tried.keep(one)]
        if not kept:
            told = value if isinstance(value, str) else " or ".join(value)
            days = sorted(one.created_utc[:10] for one in left)
            span = f", which are from {days[0]} to {days[-1]}" if field.default == "" else ""
            rest = "" if len(left) == len(facets) else " that the filters before it keep"
            runs = f"{counted(len(left), 'run')}{rest}{span}"
            return f"The filter {field.name} {told} keeps none of the {runs}; leave it out."
        left = kept
    raise AssertionError("some filter keeps nothing")
