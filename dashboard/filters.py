"""Which runs are shown, as one value that lives in the address of a page."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dashboard.facets import Facets

PAGES = {
    "claims": "",
    "ab": "ab",
    "syncs": "syncs",
    "timeline": "timeline",
    "whatif": "what-if",
    "run": "run",
    "open": "open",
}
"""Page -> its path. The landing page has none: it does not answer under its own name."""


_DAYS = ("since", "until")
_SOURCES = ("measured", "modelled")


@dataclass(frozen=True)
class Filters:
    """Each field keeps the runs that have one of its values; an empty field keeps all.

    Names of scenarios, models, GPUs and fixes are the same in upper and lower case.
    """

    scenario: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    since: str = ""
    """First day, `2026-01-31`."""
    until: str = ""
    """Last day, included."""
    run: tuple[str, ...] = ()

    def keep(self, facets: Facets) -> bool:
        """Whether a run with these facts is shown."""
        day = facets.created_utc[:10]
        return (
            _names(self.scenario, facets.scenario)
            and _names(self.model, facets.model)
            and _names(self.gpu, facets.gpu)
            and _names(self.fix, *facets.fixes)
            and (not self.source or facets.source in self.source)
            and (not self.since or day >= self.since)
            and (not self.until or day <= self.until)
            and (not self.run or facets.id in self.run)
        )

    def query(self) -> list[tuple[str, str]]:
        """Pairs of an address; a field with several values is repeated."""
        pairs: list[tuple[str, str]] = []
        for field in fields(self):
            value = getattr(self, field.name)
            values = (value,) if isinstance(value, str) else value
            pairs += [(field.name, one) for one in values if one]
        return pairs


def _names(wanted: tuple[str, ...], *names: str) -> bool:
    return not wanted or bool({plain_name(name) for name in wanted} & set(map(plain_name, names)))


def plain_name(name: str) -> str:
    """A name as it is compared: `NVIDIA H200` and `nvidia-h200` are one."""
    return name.casefold().replace(" ", "-")


def parse_filters(query: Mapping[str, Sequence[str]]) -> Filters:
    """The filters that somebody typed, in a command or in the address of a route.

    Raises `UsageError` for a name that is no filter, a day or source that is none, and days that
    leave nothing between them. Which names the runs of a store have, `dashboard.run_choice` knows.
    """
    known = [field.name for field in fields(Filters)]
    for name, values in query.items():
        if name not in known:
            raise UsageError(f"There is no filter {name!r}; choose {', '.join(known)}.")
        if name in _DAYS and len(values) > 1:
            raise UsageError(f"{name} takes one day, not {len(values)}; give it once.")
    filters = filters_from_query(query)
    for name in _DAYS:
        day = getattr(filters, name)
        if day and not _is_day(day):
            raise UsageError(f"{name} {day!r} is no day; write it as 2026-01-31.")
    if filters.since and filters.until and filters.since > filters.until:
        raise UsageError(
            f"No day is from {filters.since} on and up to {filters.until}; swap since and until."
        )
    for word in filters.source:
        if word not in _SOURCES:
            raise UsageError(f"source {word!r} is none; choose {' or '.join(_SOURCES)}.")
    return filters


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def filters_from_query(query: Mapping[str, Sequence[str]]) -> Filters:
    """The filters that an address holds; names that are no filter are left alone."""
    values: dict[str, str | tuple[str, ...]] = {}
    for field in fields(Filters):
        given = tuple(query.get(field.name, ()))
        values[field.name] = (given[-1] if given else "") if field.default == "" else given
    return Filters(**values)  # type: ignore[arg-type]  # built from its own fields


def permalink(base: str, page: str, query: Sequence[tuple[str, str]]) -> str:
    """The address of a page with these pairs, `http://host:8501/ab?gpu=NVIDIA+H200`."""
    path = quote(PAGES[page])
    text = urlencode(query)
    return f"{base.rstrip('/')}/{path}" + (f"?{text}" if text else "")
