"""Which runs are shown, as one value that lives in the address of a page."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

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


@dataclass(frozen=True)
class Filters:
    """Each field keeps the runs that have one of its values; an empty field keeps all."""

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
            (not self.scenario or facets.scenario in self.scenario)
            and (not self.model or facets.model in self.model)
            and (not self.gpu or facets.gpu in self.gpu)
            and (not self.fix or any(fix in self.fix for fix in facets.fixes))
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
