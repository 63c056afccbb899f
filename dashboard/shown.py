"""What every page is made of: filters, charts with their table, links, empty states."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pandas as pd
import streamlit as st

from dashboard.charts.style import CONFIG, inked
from dashboard.facets import facets_of
from dashboard.filters import PAGES, Filters, filters_from_query, permalink
from dashboard.plain import markdown_text, without_folder
from dashboard.settings import read_settings
from dashboard.snapshot import Snapshot, shared_snapshots
from harness.errors import StoreError
from harness.record.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dashboard.charts.style import Figure
    from dashboard.facets import Facets
    from harness.record.records import RunRecord, Sample
    from harness.tables.grid import Table

FACETS = ("scenario", "model", "gpu", "fix", "source")
TITLES = {"scenario": "Scenario", "model": "Model", "gpu": "GPU", "fix": "Fix", "source": "Source"}


def snapshot() -> Snapshot:
    """The store as it is now; the page ends with one sentence where it cannot be listed."""
    root = read_settings().store
    try:
        return shared_snapshots(root).get()
    except StoreError as error:
        st.error(markdown_text(without_folder(error, root)))
        st.stop()


def filter_sidebar(found: Snapshot) -> None:
    """The filters that all pages share; each lives in the address."""
    values: dict[str, list[str]] = {
        "scenario": sorted({f.scenario for f in found.facets}),
        "model": sorted({f.model for f in found.facets}),
        "gpu": sorted({f.gpu for f in found.facets}),
        "fix": sorted({fix for f in found.facets for fix in f.fixes}),
        "source": sorted({f.source for f in found.facets}),
    }
    with st.sidebar:
        for name in FACETS:
            st.multiselect(
                TITLES[name],
                values[name],
                key=name,
                bind="query-params",
                placeholder="all",
            )
        left, right = st.columns(2)
        for column, name, title in ((left, "since", "From"), (right, "until", "To")):
            column.date_input(
                title,
                value=None,
                key=name,
                bind="query-params",
                format="YYYY-MM-DD",
                min_value=date(2020, 1, 1),
            )
        st.caption(f"{len(found.facets):,} runs in {markdown_text(found.name)}")
        if found.problems:
            with st.expander(f"{len(found.problems)} folders are no readable run"):
                for problem in found.problems[:50]:
                    st.text(f"{problem.name}: {problem.reason}")


def current_filters() -> Filters:
    """What the sidebar says."""
    state = st.session_state
    chosen = {name: [str(value) for value in state.get(name) or ()] for name in FACETS}
    days = {
        name: [day.isoformat()] if isinstance(day := state.get(name), date) else []
        for name in ("since", "until")
    }
    return filters_from_query(chosen | days)


def warn_of_gone(found: Snapshot, run_ids: Sequence[str]) -> None:
    """Say so where the address names runs that the store does not have (any more)."""
    for run_id in run_ids:
        if found.find(run_id) is None:
            st.warning(
                f"The run {markdown_text(run_id[:120])} is not in this store: "
                "it was removed, or the link is for another store."
            )


def page_head(page: str, title: str, question: str, query: Sequence[tuple[str, str]] = ()) -> None:
    """Title, the question that the page answers, and a link to what is shown."""
    words, link = st.columns([5, 1], vertical_alignment="bottom")
    words.title(title, anchor=False)
    words.caption(question)
    with link.popover("Copy link", width="stretch"):
        st.caption("This address shows the same again:")
        st.code(permalink(base_url(), page, [*current_filters().query(), *query]), language=None)


def base_url() -> str:
    """Where this server is reached, without page and query."""
    found = urlsplit(st.context.url or "http://127.0.0.1:8501/")
    path = found.path.rstrip("/")
    for name in PAGES.values():
        if name and path.endswith(f"/{name}"):
            path = path.removesuffix(f"/{name}")
    return f"{found.scheme}://{found.netloc}{path}"


def run_link(run_id: str) -> str:
    """The address of one run's page."""
    return permalink(base_url(), "run", [("id", run_id)])


def show_chart(
    figure: Figure, alt: str, key: str, on_drag: Callable[[], None] | None = None
) -> None:
    """A chart with its words for those who cannot see it.

    `on_drag` is called when somebody has dragged over it: `st.session_state[key]` then says where.
    """
    drawn = inked(figure, st.context.theme.type or "light")
    st.plotly_chart(
        drawn, theme=None, config=CONFIG, alt=alt, key=key, height=figure["layout"]["height"],
        on_select=on_drag or "ignore", selection_mode="box",
    )  # fmt: skip


def show_table(table: Table, csv: str, name: str) -> None:
    """A table and its rows unrounded as CSV."""
    frame = pd.DataFrame(list(table.rows), columns=list(table.columns), dtype="str")
    config = {}
    if "Run" in frame.columns:
        frame["Run"] = [run_link(run_id) if len(run_id) > 1 else "" for run_id in frame["Run"]]
        config["Run"] = st.column_config.LinkColumn(display_text=r"id=(.*)$")
    st.dataframe(frame, hide_index=True, column_config=config, key=f"table-{name}", alt=name)
    st.download_button(
        "CSV", csv, f"{name}.csv", "text/csv", key=f"csv-{name}", on_click="ignore",
        icon=":material/download:",
    )  # fmt: skip


def empty(sentence: str, command: str) -> None:
    """Nothing to show, and what to type to have something."""
    st.info(sentence, icon=":material/inbox:")
    st.code(command, language=None, wrap_lines=True)


@st.cache_data(max_entries=64, show_spinner=False)
def samples_of(root: str, run_id: str) -> tuple[Sample, ...]:
    """All samples of one run, which never change; none where they cannot be read."""
    try:
        return Store(root).samples(run_id)
    except StoreError:
        return ()


def run_titles(records: Sequence[RunRecord]) -> dict[str, str]:
    """Run id -> how it is named in a list."""
    return facet_titles([facets_of(record) for record in records])


def facet_titles(listed: Sequence[Facets]) -> dict[str, str]:
    """The same from the facts of each run, without reading its record."""
    return {
        facets.id: f"{facets.created_utc[:16].replace('T', ' ')} · {facets.model} · "
        f"{facets.gpu} · {facets.source}"
        for facets in listed
    }
