"""JSON routes, the verb that serves, and when it refuses."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from dashboard import login
from dashboard.api import routes
from dashboard.settings import Settings
from dashboard.snapshot import SnapshotCache
from gapless.cli import dashboard as verb
from gapless.cli.main import main
from tests.dashboard.stores import fill_mixed, fill_one

if TYPE_CHECKING:
    from harness.record.store import Store


def client(store: Store, *, needs_login: bool = False) -> TestClient:
    settings = Settings(store=store.root, needs_login=needs_login, is_public=False)
    return TestClient(Starlette(routes=routes(settings, SnapshotCache(store.root))))


def test_runs_as_json(store: Store) -> None:
    fill_mixed(store)
    web = client(store)
    listed = web.get("/api/runs").json()
    assert listed["num_runs"] == 1
    assert {one["name"] for one in listed["problems"]} == {"newer", "bad", "torn"}
    run_id = listed["runs"][0]["id"]
    assert web.get(f"/api/runs/{run_id}").json()["scenario"]["name"] == "synthetic-packed"
    assert web.get("/api/runs?gpu=CPU").json()["num_runs"] == 1
    assert web.get("/api/runs?until=2020-01-01").json()["num_runs"] == 0
    assert web.get("/api/report").json()["verdict"].startswith("3 published claims")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("gpuu=cpu", "There is no filter 'gpuu'; choose scenario, model, gpu"),
        ("gpu=none", "No run has the gpu 'none'; choose cpu."),
        ("source=published", "choose measured or modelled"),
        ("since=yesterday", "write it as 2026-01-31"),
        ("since=2026-02-30", "is no day"),
        ("since=2026-02-01&since=2026-03-01", "takes one day, not 2"),
        ("since=2026-02-01&until=2026-01-01", "swap since and until"),
    ],
)
def test_a_filter_that_is_none_is_refused_with_the_choices(
    store: Store, query: str, says: str
) -> None:
    fill_one(store)
    web = client(store)
    for route in ("runs", "report"):
        answer = web.get(f"/api/{route}?{query}")
        assert answer.status_code == 400
        assert says in answer.json()["error"]


@pytest.mark.parametrize(
    "run_id", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "a%00b", "gone", "x" * 300]
)
def test_run_ids_cannot_leave_the_store(store: Store, run_id: str) -> None:
    fill_one(store)
    secret = Path(store.root).parent / "run.json"
    secret.write_text('{"secret": 1}')
    answer = client(store).get(f"/api/runs/{run_id}")
    assert "secret" not in answer.text
    if answer.status_code == 200:
        assert "num_runs" in answer.json(), "the client itself had resolved the dots"
    else:
        assert answer.status_code == 404
        assert store.root not in answer.text


def test_behind_a_login_there_are_no_open_routes(store: Store) -> None:
    fill_one(store)
    assert client(store, needs_login=True).get("/api/runs").status_code == 404


def test_public_needs_a_login_or_plain_words(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_one(store)
    monkeypatch.setattr(verb, "_require_free", lambda *_: None)
    monkeypatch.setattr(login, "secrets_files", lambda: (tmp_path / "secrets.toml",))
    started: list[list[str]] = []
    monkeypatch.setattr(verb.os, "execve", lambda _, line, env: started.append([*line, env]))
    monkeypatch.setattr(verb.subprocess, "call", lambda line, env: started.append([*line, env]))
    words = ["dashboard", "--store", store.root, "--public", "--no-browser"]
    assert main(words) == 2
    assert "--public needs a login" in capsys.readouterr().err
    (tmp_path / "secrets.toml").write_text('[auth]\nredirect_uri = "https://x/oauth2callback"\n')
    assert main(words) == 2
    assert "lacks cookie_secret, client_id" in capsys.readouterr().err
    assert started == []
    main([*words, "--no-auth"])
    line = started[0]
    assert line[line.index("--server.address") + 1] == "0.0.0.0"
    assert line[-1]["GAPLESS_DASHBOARD_ACCESS"] == "open"


def test_a_complete_login_is_enough(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.write_text(
        '[auth]\nredirect_uri = "https://x/oauth2callback"\ncookie_secret = "s"\n'
        'client_id = "a"\nclient_secret = "b"\nserver_metadata_url = "https://y"\n'
    )
    monkeypatch.setattr(login, "secrets_files", lambda: (secrets,))
    monkeypatch.setattr(login.importlib.util, "find_spec", lambda _: object())
    assert login.missing_login() is None


def test_a_port_in_use_is_bad_usage(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_one(store)
    monkeypatch.setattr(verb.os, "execve", lambda *_: pytest.fail("it started"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", "--store", store.root, "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"Port {port} of 127.0.0.1 cannot be used" in error
    assert "give another --port" in error


def test_by_default_only_this_machine_can_reach_it() -> None:
    options = verb.server_options(8501, public=False, headless=True)
    assert options["server.address"] == "127.0.0.1"
    assert options["browser.gatherUsageStats"] == "false"
    assert options["server.headless"] == "true"


@pytest.mark.parametrize("words", [["--no-auth"], ["--port", "0"], ["--store", "/dev/null"]])
def test_bad_usage_is_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb.os, "execve", lambda *_: pytest.fail("it started"))
    assert main(["dashboard", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_export_needs_a_run_and_a_file_name(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "--store", store.root]
    assert main([*words, str(tmp_path / "out.html")]) == 2
    assert f"There is no store {store.root}" in capsys.readouterr().err
    Path(store.root).mkdir()
    assert main([*words, str(tmp_path / "out.html")]) == 2
    assert "has no run; measure with" in capsys.readouterr().err
    fill_one(store)
    assert main([*words, str(tmp_path / "out")]) == 2
    assert main([*words, str(tmp_path / "out.html"), "--plotlyjs", "x"]) == 2
    assert main([*words, str(tmp_path / "out.html")]) == 0
    assert main([*words, str(tmp_path / "site"), "--site"]) == 0
    assert "1 run: " in capsys.readouterr().out


def test_data_charts_and_export_need_no_streamlit_and_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "import dashboard.html_export, dashboard.markdown_report, dashboard.trace_child\n"
        "import gapless.cli.main\n"
        "import json; print(json.dumps([n for n in ('streamlit', 'torch') if n in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert json.loads(done.stdout) == []
