"""A login with OpenID Connect, against a provider on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.record.store import Store
from tests.browser.browsing import free_port, started, visit
from tests.dashboard import synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDED = ("authlib", "oidc_provider_mock")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason="needs Authlib and oidc-provider-mock (pip install -e '.[browser]')",
)


@contextmanager
def provider() -> Iterator[str]:
    """A provider that lets in whoever gives a name."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metadata = f"http://127.0.0.1:{port}/.well-known/openid-configuration"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(metadata, timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        yield metadata
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_a_login_is_asked_for_and_the_way_out_ends_it(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "runs"
    synthetic.write(Store(str(store)), synthetic.record(1))
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with provider() as metadata:
        secrets = tmp_path / ".streamlit" / "secrets.toml"
        secrets.parent.mkdir()
        secrets.write_text(
            f'[auth]\nredirect_uri = "{base}/oauth2callback"\n'
            f'cookie_secret = "only for this test"\nclient_id = "gapless"\n'
            f'client_secret = "none"\nserver_metadata_url = "{metadata}"\n'
        )
        words = ["-m", "gapless", "dashboard", "--public", "--no-browser", "--store", str(store)]
        # The provider answers on plain HTTP, which Authlib takes from nobody else.
        monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        with started(words, port_option="--port", port=port, folder=tmp_path):
            seen = visit(chromium, base)
            seen.page.goto(base)
            login = seen.page.get_by_role("button", name="Log in")
            login.wait_for(timeout=60_000)
            assert "Claims" not in seen.page.inner_text("body")
            with urllib.request.urlopen(f"{base}/api/runs", timeout=30) as answer:
                assert b"gapless.bench_run" not in answer.read()

            login.click()
            seen.page.locator("input[name=sub]").fill("ada@example.com")
            seen.page.get_by_role("button", name="Authorize").click()
            seen.page.get_by_text("Logged in as ada@example.com").wait_for(timeout=60_000)
            seen.settle()
            assert "Claims" in seen.page.inner_text("body")

            seen.page.get_by_role("button", name="Log out").click()
            seen.page.wait_for_url("**/oauth2/end_session**", timeout=60_000)
            seen.page.goto(base)
            seen.page.get_by_role("button", name="Log in").wait_for(timeout=60_000)
            assert "Claims" not in seen.page.inner_text("body")
