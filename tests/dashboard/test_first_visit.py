"""What is done ahead of the first visitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dashboard import first_visit, snapshot
from dashboard.first_visit import EARLY, EarlyScript, early_link, warm_up
from dashboard.snapshot import SnapshotCache
from harness.errors import StoreError
from tests.dashboard.stores import fill_one

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from harness.record.store import Store


def client() -> TestClient:
    async def answer(_: Request) -> PlainTextResponse:
        return PlainTextResponse("")

    routes = [Route("/{path:path}", answer)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(EarlyScript)]))


def test_this_streamlit_has_the_script_once() -> None:
    assert early_link().count(f"/{EARLY}.") == 1


@pytest.mark.parametrize("path", ["/", "/ab", "/what-if"])
def test_a_page_names_the_script(path: str) -> None:
    assert client().get(path).headers["link"] == early_link()


@pytest.mark.parametrize("path", ["/api/runs", "/static/js/index.js", "/_stcore/health"])
def test_nothing_else_names_it(path: str) -> None:
    assert "link" not in client().get(path).headers


def test_without_the_script_there_is_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_visit, "SCRIPTS", tmp_path)
    assert "link" not in client().get("/").headers


def test_the_first_visitor_finds_the_store_listed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_one(store)
    monkeypatch.setattr(snapshot, "FRESH_S", 1e9)
    snapshots = SnapshotCache(store.root)
    warm_up(snapshots)
    monkeypatch.setattr(snapshot, "take_snapshot", lambda _: pytest.fail("listed again"))
    assert len(snapshots.get().facets) == 1


def test_a_store_that_cannot_be_listed_does_not_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    snapshots = SnapshotCache(str(tmp_path / "file"))
    warm_up(snapshots)
    with pytest.raises(StoreError, match="cannot be listed"):
        snapshots.get()
