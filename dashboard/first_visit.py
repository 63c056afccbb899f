"""What would make the first visitor wait, done ahead of time.

Streamlit's page asks for the code of charts only once the first chart arrives, and waits for it
again; that code is half of what a browser loads. The server likewise loads pandas and Plotly when a
page first uses them.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit

from dashboard.charts.claim_chart import claims_chart
from dashboard.filters import PAGES
from dashboard.rows.claim_entries import spoken_claims
from harness.errors import StoreError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dashboard.snapshot import SnapshotCache

SCRIPTS = Path(streamlit.__file__).parent / "static" / "static" / "js"
EARLY = "PlotlyChart"
"""Beginning of the name of the script that draws charts. Those of tables are small, and named here
they would stand in the way of the page's own."""
PATHS = frozenset(f"/{path}" for path in PAGES.values())


def early_link() -> str:
    """A `Link` header that names this script; empty where this Streamlit has it no more."""
    found = sorted(path.name for path in SCRIPTS.glob(f"{EARLY}.*.js"))
    # Low: behind what the page itself needs, which is all that a slow line should wait for.
    return ", ".join(
        f"<./static/js/{name}>; rel=modulepreload; fetchpriority=low" for name in found
    )


class EarlyScript:
    """Lets the browser load the script of charts beside those of the page itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._link = early_link().encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Adds the header to the answer for a page."""

        async def send_with_link(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"link", self._link)]
                message = {**message, "headers": headers}
            await send(message)

        is_page = scope["type"] == "http" and scope["path"] in PATHS and self._link
        await self._app(scope, receive, send_with_link if is_page else send)


def warm_up(snapshots: SnapshotCache) -> None:
    """List the store, and load pandas and Plotly with one chart of the landing page."""
    from plotly.graph_objects import Figure

    importlib.import_module("pandas")
    with contextlib.suppress(StoreError):  # the page says it
        found = snapshots.get()
        Figure(claims_chart(spoken_claims(found.facets, found.find)))
