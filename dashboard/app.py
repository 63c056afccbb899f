"""The dashboard. Start it with `gapless dashboard`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.filters import PAGES
from dashboard.settings import read_settings
from dashboard.views.page_frame import filter_sidebar, snapshot

VIEWS = (
    ("claims", "views/claims_view.py", "Claims", ":material/fact_check:"),
    ("ab", "views/ab_view.py", "A/B", ":material/compare_arrows:"),
    ("syncs", "views/syncs_view.py", "Syncs", ":material/hourglass_empty:"),
    ("timeline", "views/timeline_view.py", "Timeline", ":material/view_timeline:"),
    ("whatif", "views/whatif_view.py", "What-if", ":material/tune:"),
    ("run", "views/run_view.py", "Run", ":material/description:"),
    ("open", "views/trace_view.py", "Open a trace", ":material/upload_file:"),
)


ICON = Path(__file__).parent / "assets" / "icon.png"


def _log_out() -> None:
    """Who is logged in, and the way out."""
    with st.sidebar:
        who = st.user.get("email") or st.user.get("name") or st.user.get("sub") or "somebody"
        st.text(f"Logged in as {who}")
        st.button("Log out", on_click=st.logout)


def run() -> None:
    """Log in where that is asked for, then show the page that the address names."""
    st.set_page_config(page_title="gapless", page_icon=ICON, layout="wide")
    if read_settings().needs_login and not st.user.is_logged_in:
        st.title("gapless", anchor=False)
        st.button("Log in", on_click=st.login, type="primary")
        st.stop()
    st.logo(ICON, size="large")
    pages = [
        st.Page(path, title=title, icon=icon, url_path=PAGES[name] or None, default=not PAGES[name])
        for name, path, title, icon in VIEWS
    ]
    page = st.navigation(pages)
    filter_sidebar(snapshot())
    if read_settings().needs_login:
        _log_out()
    page.run()


run()
