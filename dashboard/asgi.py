"""What the server runs: the pages of `app.py` and the JSON routes beside them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from streamlit.starlette import App

from dashboard.api import routes
from dashboard.first_visit import EarlyScript, warm_up
from dashboard.origin_guard import OriginGuard, named_origins
from dashboard.settings import read_settings
from dashboard.snapshot import shared_snapshots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOPBACK_NAMES = ["127.0.0.1", "localhost", "[::1]"]

settings = read_settings()
snapshots = shared_snapshots(settings.store)
middleware = [
    Middleware(OriginGuard, allowed=named_origins(), has_login=settings.needs_login),
    Middleware(EarlyScript),
]
if not settings.is_public:
    # On loopback another web site could reach the routes through a name of its own that it
    # points here.
    middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK_NAMES))


@asynccontextmanager
async def lifespan(_app: App) -> AsyncIterator[None]:
    """Prepares the first page before the server says that it is there."""
    await run_in_threadpool(warm_up, snapshots)
    yield


app = App(
    Path(__file__).with_name("app.py"),
    routes=routes(settings, snapshots),
    middleware=middleware,
    lifespan=lifespan,
)
