"""Filters live in an address and come back from it."""

from __future__ import annotations

from datetime import date
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from dashboard.facets import facets_of
from dashboard.filters import PAGES, Filters, filters_from_query, permalink
from tests.dashboard import synthetic

names = st.lists(st.text(min_size=1, max_size=12), max_size=3, unique=True).map(tuple)
days = st.one_of(st.just(""), st.dates(date(2020, 1, 1)).map(date.isoformat))
filters = st.builds(
    Filters, scenario=names, model=names, gpu=names, fix=names, source=names, since=days,
    until=days, run=names,
)  # fmt: skip


@given(filters, st.sampled_from(list(PAGES)))
def test_a_permalink_holds_the_filters(chosen: Filters, page: str) -> None:
    link = urlsplit(permalink("http://host:1/base/", page, chosen.query()))
    assert link.path == f"/base/{PAGES[page]}"
    assert filters_from_query(parse_qs(link.query)) == chosen


def test_filters_keep_what_they_name() -> None:
    facets = facets_of(synthetic.record(1, gpu="NVIDIA H200"))
    assert facets.fixes == ("packed-metadata", "checkpoint-reload", "moe-routing")
    for kept in (
        Filters(),
        Filters(gpu=("NVIDIA H200", "cpu")),
        Filters(fix=("moe-routing",)),
        Filters(since="2026-01-02", until="2026-01-02"),
        Filters(run=(facets.id,)),
    ):
        assert kept.keep(facets), kept
    for dropped in (
        Filters(gpu=("cpu",)),
        Filters(fix=("other",)),
        Filters(source=("modelled",)),
        Filters(since="2026-01-03"),
        Filters(until="2026-01-01"),
        Filters(model=("Synthetic-8B",)),
        Filters(scenario=("x",)),
    ):
        assert not dropped.keep(facets), dropped
