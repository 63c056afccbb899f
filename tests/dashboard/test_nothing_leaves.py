"""The server asks nobody for anything, whoever asks it, and a foreign page is refused."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dashboard import snapshot, trace_child
from dashboard.origin_guard import OriginGuard
from dashboard.snapshot import SnapshotCache
from harness.errors import UsageError
from tests.dashboard.stores import fill_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.record.store import Store

WATCH = """
import os, socket

def note(what):
    with open(os.environ["WATCHED"], "a") as file:
        file.write(what + "\\n")

def local(address):
    host = address[0] if isinstance(address, tuple) else address
    here = (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0")
    return host in here or isinstance(address, str)

for name in ("connect", "connect_ex", "sendto"):
    def watched(self, *args, real=getattr(socket.socket, name), name=name):
        if not local(args[-1]):
            note(f"{name} {args[-1]}")
            raise OSError("watched")
        return real(self, *args)
    setattr(socket.socket, name, watched)
for name in ("getaddrinfo", "gethostbyname"):
    def asked(host, *args, real=getattr(socket, name), name=name, **options):
        if not local((host,)):
            note(f"{name} {host}")
            raise OSError("watched")
        return real(host, *args, **options)
    setattr(socket, name, asked)
"""


@pytest.fixture
def served(store: Store, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Port of a server with watched sockets, and the file of what they were asked for."""
    fill_one(store)
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    checkout = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "gapless", "dashboard", "--no-browser", "--port", str(port)],
        env={
            **os.environ,
            "GAPLESS_STORE": store.root,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{checkout}",
            "WATCHED": str(tmp_path / "watched"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield port, tmp_path / "watched"
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_no_socket_leaves_the_machine(served: tuple[int, Path]) -> None:
    port, watched = served
    socket_head = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    assert ask(port, "/") == 200
    assert ask(port, "/_stcore/stream", **socket_head, Origin="http://evil.example") == 403
    assert ask(port, "/_stcore/stream", **socket_head, Origin=f"http://127.0.0.1:{port}") == 101
    for path in ("/", "/api/runs", "/_stcore/health", "/_stcore/host-config"):
        assert ask(port, path, Origin="http://evil.example") == 403
        assert ask(port, path, Host="evil.example") == 400
        assert ask(port, path, Origin=f"http://localhost:{port}", Host=f"localhost:{port}") == 200
    assert not watched.exists(), watched.read_text()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://testserver", 200),
        ("https://testserver:8501", 200),
        ("https://proxy.example", 200),
        ("http://evil.example", 403),
        ("http://testserver.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("\x80", 403),
    ],
)
def test_only_the_host_that_was_asked_is_an_origin(origin: str | None, status: int) -> None:
    app = Starlette(
        routes=[Route("/", lambda request: PlainTextResponse(str(request.headers.get("origin"))))]
    )
    web = TestClient(OriginGuard(app, allowed={"proxy.example"}))
    answer = web.get("/", headers={} if origin is None else {"origin": origin.encode("latin-1")})
    assert answer.status_code == status
    if status == 200:
        assert answer.text == ("None" if origin is None else "http://localhost")


def test_a_store_that_goes_away_comes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FRESH_S", 0.0)
    monkeypatch.setattr(snapshot, "COST_FACTOR", 0.0)
    fill_one(store)
    cache, root = SnapshotCache(store.root), Path(store.root)
    assert len(cache.get().records) == 1
    root.rename(root.with_name("away"))
    assert len(cache.get().records) == 0
    root.with_name("away").rename(root)
    assert len(cache.get().records) == 1


def test_no_more_traces_are_read_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()
    gate = threading.Barrier(trace_child.MAX_AT_ONCE)

    def audit(*args: object) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(timeout=60)
        with lock:
            running -= 1
        return "read"

    monkeypatch.setattr(trace_child, "_audit", audit)
    visitors = [
        threading.Thread(target=trace_child.audit_upload, args=("t.json", b"{}"))
        for _ in range(3 * trace_child.MAX_AT_ONCE)
    ]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join(timeout=60)
    assert most == trace_child.MAX_AT_ONCE
    monkeypatch.setattr(trace_child, "_turns", threading.BoundedSemaphore(1))
    assert trace_child._turns.acquire()
    with pytest.raises(UsageError, match="try again"):
        trace_child.audit_upload("t.json", b"{}", max_wall_s=0.01)
