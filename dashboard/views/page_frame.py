"""What stands around every page: the filters beside it, its title, and a link to it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.filters import filters_from_query, permalink
from dashboard.plain import markdown_text, without_folder
from dashboard.settings import read_settings
from dashboard.snapshot import shared_snapshots
from dashboard.views import address
from harness.counts import counted
from harness.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboard.contents.blocks import Head
    from dashboard.filters import Filters
    from dashboard.snapshot import Snapshot

FACETS = ("scenario", "model", "gpu", "fix", "source")
TITLES = {"scenario": "Scenario", "model": "Model", "gpu": "GPU", "fix": "Fix", "source": "Source"}
DAYS = {"since": "From", "until": "To"}
FIRST_DAY = date(2020, 1, 1)


def snapshot() -> Snapshot:
    """The store as it is now; the page ends with one sentence where it cannot be listed."""
    root = read_settings().store
    try:
        return shared_snapshots(root).get()
    except StoreError as error:
        st.error(markdown_text(without_folder(error, root)))
        st.stop()


@contextmanager
def page_frame(head: Head, *own: str) -> Iterator[Snapshot]:
    """Title and question first; at the end, a link to what is shown by then.

    `own` are the names that the page itself has in its address.
    """
    words, link = st.columns([5, 1], vertical_alignment="bottom")
    words.title(head.title, anchor=False)
    words.caption(head.question)
    for name in st.query_params:
        if name not in (*FACETS, *DAYS, *own):
            st.warning(markdown_text(f"The address has {name[:80]!r}, which this page has not."))
    try:
        yield snapshot()
    finally:
        query = [(name, value) for name in own for value in address.named(name)]
        filters = current_filters().query()
        with link.popover("Copy link", width="stretch"):
            st.caption("This address shows the same again:")
            st.code(permalink(address.base_url(), head.id, [*filters, *query]), language=None)


def filter_sidebar(found: Snapshot) -> None:
    """The filters that all pages share; each lives in the address."""
    values: dict[str, list[str]] = {
        "scenario": sorted({f.scenario for f in found.facets}),
        "model": sorted({f.model for f in found.facets}),
        "gpu": sorted({f.gpu for f in found.facets}),
        "fix": sorted({fix for f in found.facets for fix in f.fixes}),
        "source": sorted({f.source for f in found.facets}),
    }
    for name in FACETS:
        address.say_unknown(name, values[name])
    for name in DAYS:
        address.say_unknown(name, [day for day in address.named(name) if _is_day(day)])
    with st.sidebar:
        for name in FACETS:
            st.multiselect(
                TITLES[name], values[name], key=name, bind="query-params", placeholder="all"
            )
        for column, (name, title) in zip(st.columns(2), DAYS.items(), strict=True):
            column.date_input(
                title, value=None, key=name, bind="query-params", format="YYYY-MM-DD",
                min_value=FIRST_DAY,
            )  # fmt: skip
        st.caption(f"{counted(len(found.facets), 'run')} in {markdown_text(found.name)}")
        if found.problems:
            number = counted(len(found.problems), "folder")
            with st.expander(f"{number} cannot be read as a run"):
                for problem in found.problems[:50]:
                    st.text(f"{problem.name}: {problem.reason}")


def current_filters() -> Filters:
    """What the sidebar says."""
    state = st.session_state
    chosen = {name: [str(value) for value in state.get(name) or ()] for name in FACETS}
    days = {
        name: [day.isoformat()] if isinstance(day := state.get(name), date) else [] for name in DAYS
    }
    return filters_from_query(chosen | days)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text) >= FIRST_DAY
    except ValueError:
        return False
