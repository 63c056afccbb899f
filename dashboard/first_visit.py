"""What would make the first visitor wait, done ahead of time.

Streamlit's page asks for the code of charts and tables only once the first of them arrives, and
waits for it again; that code is most of what a browser loads. The server likewise loads pandas and
Plotly when a page first uses them.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit

from dashboard.charts.claims import claims_chart
from dashboard.filters import PAGES, Filters
from dashboard.rows.claims import claim_entries
from harness.errors import StoreError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dashboard.snapshot import SnapshotCache

SCRIPTS = Path(streamlit.__file__).parent / "static" / "static" / "js"
EARLY = ("PlotlyChart", "DataFrame", "arrowFormatUtils")
"""Beginnings of the names of the scripts that draw charts and tables."""
PATHS = frozenset(f"/{path}" for path in PAGES.values())


def early_links() -> str:
    """A `Link` header that names these scripts; empty where this Streamlit has them no more."""
    found = [path.name for name in EARLY for path in sorted(SCRIPTS.glob(f"{name}.*.js"))]
    # Low: behind what the page itself needs, which is all that a slow line should wait for.
    return ", ".join(
        f"<./static/js/{name}>; rel=modulepreload; fetchpriority=low" for name in found
    )


class EarlyScripts:
    """Lets the browser load the scripts of charts and tables beside those of the page itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._links = early_links().encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Adds the header to the answer for a page."""

        async def send_with_links(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"link", self._links)]
                message = {**message, "headers": headers}
            await send(message)

        is_page = scope["type"] == "http" and scope["path"] in PATHS and self._links
        await self._app(scope, receive, send_with_links if is_page else send)


def warm_up(snapshots: SnapshotCache) -> None:
    """List the store, and load pandas and Plotly with one chart of the landing page."""
    from plotly.graph_objects import Figure

    importlib.import_module("pandas")
    with contextlib.suppress(StoreError):  # the page says it
        Figure(claims_chart(claim_entries(snapshots.get().speaking(Filters()))))
