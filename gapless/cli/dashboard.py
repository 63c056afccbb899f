"""`gapless dashboard`: the interactive pages, served on this machine."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.choosing import store_to_read
from gapless.cli.options import ReadStoreOption
from harness.errors import UsageError

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"


def command(
    store: ReadStoreOption = None,
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8501,
    public: Annotated[
        bool, typer.Option("--public", help="Listen on every address; needs a login set up.")
    ] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="With --public: let in everyone who can reach it.")
    ] = False,
    browser: Annotated[
        bool | None,
        typer.Option(
            "--browser/--no-browser", help="Open a browser [default: where there is a display]."
        ),
    ] = None,
) -> None:
    """Show runs side by side in the browser; stops with Ctrl-C."""
    if importlib.util.find_spec("streamlit") is None:
        raise UsageError(
            "The dashboard needs streamlit: pip install 'gapless[dashboard]'; "
            "`gapless export OUT.html` works without it."
        )
    if no_auth and not public:
        raise UsageError("--no-auth belongs to --public: loopback has no login to leave out.")
    if public and not no_auth:
        _require_login()
    _require_free(port, EVERYWHERE if public else LOOPBACK)

    import dashboard
    from harness.record.store import Store

    root = store_to_read(store)
    Store(root).listing()  # an unreadable store is told here, in one sentence
    folder = Path(dashboard.__file__).resolve().parent
    opened = _has_display() if browser is None else browser
    environment = {
        **os.environ,
        "GAPLESS_STORE": root if "://" in root else str(Path(root).resolve()),
        "GAPLESS_DASHBOARD_ACCESS": "login" if public and not no_auth else "open",
        "GAPLESS_DASHBOARD_REACH": "public" if public else "loopback",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder.parent), os.getenv("PYTHONPATH")))),
    }
    command_line = [sys.executable, "-m", "streamlit", "run", str(folder / "asgi.py")]
    for name, value in server_options(port, public=public, headless=not opened).items():
        command_line += [f"--{name}", value]
    if os.name == "posix":
        # The server takes this process's place, so that whoever stops it stops the server.
        sys.stdout.flush()
        os.execve(sys.executable, command_line, environment)
    raise typer.Exit(subprocess.call(command_line, env=environment))


def server_options(port: int, *, public: bool, headless: bool) -> dict[str, str]:
    """Options of Streamlit, by name."""
    return {
        "server.address": EVERYWHERE if public else LOOPBACK,
        "server.port": str(port),
        "server.headless": str(headless).lower(),
        # Watching files makes no sense in an installed package, and a venv below it has too many.
        "server.fileWatcherType": "none",
        "server.maxUploadSize": "256",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "theme.light.primaryColor": "#0b66a0",
        "theme.dark.primaryColor": "#6cb8ec",
    }


def _require_free(port: int, address: str) -> None:
    """`UsageError` where nothing can listen on the port."""
    with socket.socket() as one:
        # As servers do, so that a connection that has just ended is no obstacle.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, port))
        except OSError as error:
            raise UsageError(
                f"Port {port} of {address} cannot be used: {error.strerror}; give another --port."
            ) from error


def _require_login() -> None:
    """`UsageError` unless Streamlit's own secrets hold an OIDC provider."""
    from dashboard.login import missing_login

    missing = missing_login()
    if missing:
        raise UsageError(
            f"--public needs a login: {missing}; see docs/dashboard.md, "
            "or say --no-auth to let in everyone who can reach this machine."
        )


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return sys.stdout.isatty()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(display) and sys.stdout.isatty()
