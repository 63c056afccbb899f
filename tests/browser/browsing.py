"""Starts the dashboard as a user does and looks at it with Chromium."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SETTLED = '[data-testid="stApp"][data-test-script-state="notRunning"]'
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VIEWS = {
    "claims": "/",
    "ab": "/ab",
    "syncs": "/syncs",
    "timeline": "/timeline",
    "whatif": "/what-if",
    "run": "/run",
    "open": "/open",
}


def missing_browser() -> str | None:
    """Why no browser test can run, or `None`."""
    try:
        import playwright  # noqa: F401  # only whether it is there
    except ImportError:
        return "playwright is not installed (pip install -e '.[browser]')"
    if find_chromium() is None:
        return "no Chromium on the PATH (Debian: apt-get install chromium)"
    return None


def find_chromium() -> str | None:
    """Path of the first browser found."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(store: str) -> Iterator[str]:
    """`gapless dashboard` on a free port; yields its address and stops it afterwards."""
    words = ["-m", "gapless", "dashboard", "--no-browser", "--store", store]
    with started(words, port_option="--port") as base:
        yield base


@contextmanager
def started(
    words: list[str],
    *,
    port_option: str = "--server.port",
    port: int | None = None,
    folder: Path = ROOT,
) -> Iterator[str]:
    """A server run by this Python in `folder`; yields its address and stops it afterwards.

    `port` is a free one where none is given.
    """
    port = port or free_port()
    server = subprocess.Popen(
        [sys.executable, *words, port_option, str(port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate(timeout=30)


def _wait_until_healthy(base: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        if server.poll() is not None:
            output = server.communicate()[0].decode(errors="replace")
            raise RuntimeError(f"the dashboard ended before it was reached:\n{output}")
        try:
            with urllib.request.urlopen(f"{base}/_stcore/health", timeout=5) as answer:
                if answer.read() == b"ok":
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise RuntimeError(f"the dashboard did not answer at {base} within a minute")


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=find_chromium(), args=flags)
        try:
            yield opened
        finally:
            opened.close()


@dataclass
class Visit:
    """One page in a browser, and what went wrong on it."""

    page: Any
    base: str
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go there and wait until the script has ended and charts are drawn."""
        self.page.goto(f"{self.base}{path}", wait_until="domcontentloaded")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing runs any more."""
        self.page.wait_for_selector(SETTLED, timeout=60_000)
        self.page.wait_for_selector('[data-testid="stHeading"]', timeout=60_000)
        self.page.wait_for_function(_QUIET, timeout=60_000, polling=250)


# A rerun starts a moment after what caused it, so quiet must last. Tables and charts load their
# code when they are first needed and show a skeleton until then, also after the script has ended.
_QUIET = """() => {
  const app = document.querySelector('[data-testid="stApp"]');
  const charts = [...document.querySelectorAll('[data-testid="stPlotlyChart"]')];
  const still = app && app.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-testid="stSkeleton"], [data-testid="stAppSkeleton"]')
    && charts.every((chart) => chart.querySelector('.main-svg'));
  const now = performance.now();
  if (!still) window.__quiet = now;
  window.__quiet ??= now;
  return still && now - window.__quiet > 700;
}"""


def visit(
    opened: Any, base: str, *, width: int = 1400, height: int = 1000, scheme: str = "light"
) -> Visit:
    """A fresh page that notes console errors and requests that leave the machine."""
    context = opened.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    seen = Visit(context.new_page(), base)
    here = (base, base.replace("http", "ws", 1), "data:", "blob:", "file:")

    def on_console(message: Any) -> None:
        if message.type == "error" and not _is_base_path_probe(message.location.get("url", "")):
            seen.errors.append(f"{message.text} {message.location.get('url', '')}")

    def on_request(request: Any) -> None:
        if not request.url.startswith(here):
            seen.outside.append(request.url)

    seen.page.on("console", on_console)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", on_request)
    return seen


def _is_base_path_probe(url: str) -> bool:
    """Streamlit's own page looks whether it is served below the page's path, and is told no."""
    parts = url.split("/", 4)
    names = {path.strip("/") for path in VIEWS.values()} - {""}
    return (
        len(parts) == 5
        and parts[3] in names
        and parts[4] in ("_stcore/health", "_stcore/host-config")
    )
