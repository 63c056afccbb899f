"""Refuses requests that a page of another site makes, before Streamlit sees them.

Streamlit looks up this machine's external address, by UDP and DNS, to compare a foreign origin with
it. Here nothing leaves the machine: an origin counts where it is the host that was asked, and
Streamlit then gets a local one. Behind a login it gets the origin itself, which it compares with
that of the login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamlit import get_option

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

ALLOWED_OPTION = "server.corsAllowedOrigins"
LOCAL_ORIGIN = b"http://localhost"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that Streamlit knows without looking anything up."""


class OriginGuard:
    """Lets through what has no origin, the origin of the host asked for, or one of `allowed`."""

    def __init__(
        self, app: ASGIApp, allowed: Collection[str] = (), *, has_login: bool = False
    ) -> None:
        self._app = app
        self._allowed = frozenset(allowed)
        self._has_login = has_login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 403, or closes the socket, where the origin is another site's."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = scope["headers"]
        origins = [value for name, value in headers if name == b"origin"]
        hosts = {_host(b"//" + value) for name, value in headers if name == b"host"}
        if not all(_host(origin) in hosts | self._allowed for origin in origins):
            await _refuse(scope, receive, send)
            return
        if self._has_login or all(_host(origin) in LOOPBACK for origin in origins):
            await self._app(scope, receive, send)
            return
        local = [(n, LOCAL_ORIGIN if n == b"origin" else value) for n, value in headers]
        await self._app({**scope, "headers": local}, receive, send)


def _host(address: bytes) -> str | None:
    try:
        return urlsplit(address.decode("ascii")).hostname
    except ValueError:
        return None


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    start = {"status": 403, "headers": [(b"content-type", b"text/plain; charset=utf-8")]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": b"A page of another site asked for this.\n"})


def named_origins() -> frozenset[str]:
    """Hosts that Streamlit's own settings name: where a proxy in front of it is reached."""
    named = [f"//{get_option('browser.serverAddress')}", *(get_option(ALLOWED_OPTION) or ())]
    hosts = {_host(str(one if "//" in one else f"//{one}").encode()) for one in named}
    return frozenset(host for host in hosts if host)
