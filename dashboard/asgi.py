"""What the server runs: the pages of `app.py` and the JSON routes beside them."""

from __future__ import annotations

from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from streamlit.starlette import App

from dashboard.api import routes
from dashboard.settings import read_settings
from dashboard.snapshot import SnapshotCache

LOOPBACK_NAMES = ["127.0.0.1", "localhost", "[::1]"]

settings = read_settings()
# On loopback another web site could reach the routes through a name of its own that it points here.
middleware = (
    [] if settings.is_public else [Middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK_NAMES)]
)
app = App(
    Path(__file__).with_name("app.py"),
    routes=routes(settings, SnapshotCache(settings.store)),
    middleware=middleware,
)
