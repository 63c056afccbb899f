"""The address of a page: what was chosen is in it, and what it names is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import streamlit as st

from dashboard.filters import PAGES, permalink
from dashboard.plain import markdown_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MAX_SHOWN = 120
"""Letters shown of a value that somebody put into an address."""


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


def named(name: str) -> list[str]:
    """The values that the address gives to this name."""
    return st.query_params.get_all(name)


def write(name: str, values: Sequence[str]) -> None:
    """Give these values to a name in the address, in the place of those it had."""
    if named(name) == list(values):
        return
    if values:
        st.query_params[name] = list(values)
    else:
        del st.query_params[name]


def unknown(name: str, options: Collection[str]) -> list[str]:
    """A sentence for each value that the address gives to this name and that is no option."""
    return [
        f"The address names {name} {value[:MAX_SHOWN]!r}, which is not here; it was left out."
        for value in named(name)
        if value not in options
    ]


def say_unknown(name: str, options: Collection[str]) -> None:
    """Warn of values in the address that a control does not offer, before it drops them."""
    for sentence in unknown(name, options):
        st.warning(markdown_text(sentence))
