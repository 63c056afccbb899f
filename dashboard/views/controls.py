"""The controls that several pages have; each choice is in the address of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.facets import facets_of, run_titles
from dashboard.plain import markdown_text
from dashboard.views import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.facets import Facets
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord


def choose_run(
    found: Snapshot, listed: Sequence[Facets], label: str, *, name: str, page: str
) -> RunRecord | None:
    """One of these runs, or the one that the address names; its id is the value in both."""
    key = f"{page}-{name}"
    titles = _titles(found, listed, name, key)
    linked = [run for run in address.named(name) if run in titles]
    if key not in st.session_state and linked:
        st.session_state[key] = linked[-1]
    chosen = st.selectbox(label, list(titles), format_func=titles.__getitem__, key=key)
    address.write(name, [chosen] if chosen else [])
    return found.find(chosen) if chosen else None


def choose_runs(
    found: Snapshot, listed: Sequence[Facets], label: str, *, name: str, page: str, limit: int
) -> list[RunRecord]:
    """Several of these runs, or those that the address names."""
    key = f"{page}-{name}"
    titles = _titles(found, listed, name, key)
    linked = [run for run in dict.fromkeys(address.named(name)) if run in titles]
    if key not in st.session_state:
        st.session_state[key] = linked[:limit]
    chosen = st.multiselect(
        label, list(titles), format_func=titles.__getitem__, key=key,
        max_selections=limit, placeholder="choose runs",
    )  # fmt: skip
    address.write(name, chosen)
    return [record for run in chosen if (record := found.find(run)) is not None]


def _titles(found: Snapshot, listed: Sequence[Facets], name: str, key: str) -> dict[str, str]:
    """Names of the runs to choose from, and of those that the address named when the page was
    opened: a filter or a bound on the list must not send a link to another run."""
    kept = f"linked-{key}"
    if key not in st.session_state:
        st.session_state[kept] = address.named(name)
        for run in st.session_state[kept]:
            if found.find(run) is None:
                st.warning(
                    f"The run {markdown_text(run[:120])} is not in this store: "
                    "it was removed, or the link is for another store."
                )
    here = {facets.id for facets in listed}
    linked = [
        facets_of(record)
        for run in dict.fromkeys(st.session_state.get(kept, ()))
        if run not in here and (record := found.find(run)) is not None
    ]
    return run_titles([*listed, *linked])


def choose_segment(label: str, options: Sequence[str], *, name: str, default: str) -> str:
    """One of a few words side by side."""
    address.say_unknown(name, options)
    chosen = st.segmented_control(
        label, list(options), default=default, required=True, key=name, bind="query-params"
    )
    return chosen or default


def choose_one(label: str, options: Sequence[str], *, name: str) -> str:
    """One word from a list, at first its first."""
    address.say_unknown(name, options)
    return st.selectbox(label, list(options), key=name, bind="query-params")


def choose_step(label: str, options: Sequence[str], *, name: str, default: str) -> str:
    """One word on a slider."""
    address.say_unknown(name, options)
    return st.select_slider(
        label, list(options), value=default, key=name, bind="query-params",
        disabled=len(options) == 1,
    )  # fmt: skip
