"""Every view against every state of a store."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from harness.origin import HOME
from tests.dashboard import synthetic
from tests.dashboard.payloads import PAYLOADS, poisoned
from tests.dashboard.stores import fill_many, fill_mixed, fill_modelled, fill_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.record.store import Store

ROOT = Path(__file__).parents[2]
APP = Path(HOME) / "dashboard" / "app.py"
TRACE = ROOT / "tests" / "trace" / "data" / "kineto_h100_after_fix_2026.json.gz"
VIEWS = ("claims", "ab", "syncs", "timeline", "whatif", "run", "trace")
NEEDS = {
    "claims": "gapless reproduce",
    "ab": "gapless bench",
    "syncs": "gapless audit",
    "timeline": "gapless model",
    "whatif": "gapless model",
    "run": "gapless reproduce",
    "trace": "gapless audit",
}
STATES: dict[str, Callable[[Store], None]] = {
    "empty": lambda _: None,
    "one": fill_one,
    "mixed": fill_mixed,
    "modelled": fill_modelled,
    "many": fill_many,
}


def opened(store: Store, monkeypatch: pytest.MonkeyPatch, view: str, **query: str) -> AppTest:
    monkeypatch.setenv("GAPLESS_STORE", store.root)
    app = AppTest.from_file(str(APP), default_timeout=60)
    for visit in ("views/claims_view.py", f"views/{view}_view.py"):
        for key, value in query.items():
            app.query_params[key] = value
        # Pages switch only in an app that has run.
        app = app.run() if visit == "views/claims_view.py" else app.switch_page(visit).run()
    assert not app.exception, [one.message for one in app.exception]
    return app


def words(app: AppTest) -> str:
    kinds = (app.title, app.caption, app.info, app.warning, app.error, app.text, app.markdown)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


@pytest.mark.parametrize("state", STATES)
def test_every_view_opens_in_every_state(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    STATES[state](store)
    for view in VIEWS:
        app = opened(store, monkeypatch, view)
        assert len(app.title) == 1, (state, view)
        assert not app.error, (state, view)


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_view_says_what_to_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    app = opened(store, monkeypatch, view)
    assert any(code.value.startswith(NEEDS[view]) for code in app.code)


def test_a_cpu_only_store_shows_measured_and_no_modelled_figure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_one(store)
    frame = opened(store, monkeypatch, "claims").dataframe[0].value
    assert set(frame["Source"]) == {"published", "measured"}
    assert "modelled" not in words(opened(store, monkeypatch, "claims")).split("measured on")[1]


def test_a_modelled_store_shows_no_measured_figure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_modelled(store)
    frame = opened(store, monkeypatch, "claims").dataframe[0].value
    assert set(frame["Source"]) == {"published", "modelled"}
    sliders = opened(store, monkeypatch, "whatif").select_slider
    assert [s.label for s in sliders] == ["GPU, slowest to fastest", "Model size"]
    badges = words(opened(store, monkeypatch, "claims")).replace("\\", "")
    assert "modelled: " in badges
    assert "measured: " not in badges


def test_what_cannot_be_read_is_told_beside_what_can(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_mixed(store)
    app = opened(store, monkeypatch, "claims")
    told = words(app)
    assert "upgrade gapless" in told
    for name in ("newer", "bad", "torn"):
        assert f"{name}: " in told
    assert any("3 folders" in one.label for one in app.expander)


def test_a_link_to_a_run_that_is_gone_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_one(store)
    for view, key in (("run", "id"), ("syncs", "of"), ("ab", "against")):
        app = opened(store, monkeypatch, view, **{key: "20200101T000000Z-gone-cpu-000000"})
        assert any("is not in this store" in one.value for one in app.warning), view


def test_a_filter_in_the_address_filters(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_many(store, 6)
    frame = opened(store, monkeypatch, "ab", gpu="B200", moved="false").dataframe[-1].value
    assert set(frame["GPU"]) == {"B200"}


def test_only_what_moved_is_on_and_can_be_switched_off(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_one(store)
    app = opened(store, monkeypatch, "ab")
    assert app.toggle[0].value is True
    moved = app.dataframe[-1].value
    app.toggle[0].set_value(False).run()
    every = app.dataframe[-1].value
    assert len(every) == 16 > len(moved) == 12


def test_a_new_run_appears_without_a_restart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import dashboard.snapshot

    monkeypatch.setattr(dashboard.snapshot, "FRESH_S", 0.0)
    monkeypatch.setattr(dashboard.snapshot, "COST_FACTOR", 0.0)
    fill_one(store)
    app = opened(store, monkeypatch, "run")
    assert len(app.selectbox(key="run-id").options) == 1
    synthetic.write(store, synthetic.record(2))
    app.run()
    assert len(app.selectbox(key="run-id").options) == 2


def test_a_trace_kept_with_a_run_is_drawn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TRACE.read_bytes()
    synthetic.write(store, synthetic.record(1), traces={"baseline": trace, "all": trace})
    app = opened(store, monkeypatch, "timeline")
    assert len(app.get("plotly_chart")) == 1
    summary, *lanes = app.dataframe
    assert list(summary.value["Timeline"]) == ["baseline", "all"]
    assert len(lanes) == 2


def test_a_trace_that_was_cut_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gzip.decompress(TRACE.read_bytes())
    cuts = {"baseline": whole.rindex(b"]"), "all": whole.index(b'"kernel"')}
    traces = {arm: gzip.compress(whole[:end]) for arm, end in cuts.items()}
    synthetic.write(store, synthetic.record(1), traces=traces)
    app = opened(store, monkeypatch, "timeline")
    assert list(app.dataframe[0].value["Timeline"]) == ["baseline"]
    partial, without = (str(one.value) for one in app.warning)
    assert "baseline" in partial
    assert "ends before its list of events does" in partial
    assert "all: its trace shows no work on a device" in without.replace("\\", "")


def test_another_run_is_shown_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = TRACE.parent / "hta_alexnet_a100_cuda_sync_events.json.gz"
    one = synthetic.write(store, synthetic.record(2), traces={"all": TRACE.read_bytes()})
    two = synthetic.write(store, synthetic.record(1), traces={"all": longer.read_bytes()})
    app = opened(store, monkeypatch, "timeline")
    for run in (one, two, one):
        app.selectbox(key="timeline-of").select(run.id).run()
        (slider,) = app.slider
        assert tuple(slider.value) == (slider.min, slider.max), run.id


def test_an_arm_named_twice_among_the_traces_is_drawn_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = {"baseline": TRACE.read_bytes()}
    stored = synthetic.write(store, synthetic.record(1), traces=traces)
    path = Path(store.root, stored.id, "run.json")
    content = json.loads(path.read_text()) | {"traced_arms": ["baseline"] * 3}
    path.write_text(json.dumps(content))
    app = opened(store, monkeypatch, "timeline")
    assert list(app.dataframe[0].value["Timeline"]) == ["baseline"]
    assert not app.warning


def test_what_is_broken_is_told_without_the_servers_folders(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = synthetic.write(
        store, synthetic.record(1), audits=synthetic.AUDITS, traces={"baseline": b"", "all": b"{"}
    )
    folder = Path(store.root, stored.id)
    (folder / "audits.json").write_text("[")
    (folder / "trace-0.json.gz").unlink()
    for page in ("timeline", "syncs"):
        told = [box.value for box in opened(store, monkeypatch, page).warning]
        assert told, page
        for text in told:
            assert store.root not in text.replace("\\", ""), page
            assert "gapless\\-upload" not in text, page


def test_a_store_that_cannot_be_listed_is_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GAPLESS_STORE", str(tmp_path / "file"))
    app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not app.exception
    assert "cannot be listed" in app.error[0].value


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_reaches_no_place_that_reads_html(
    store: Store, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    hostile = poisoned(synthetic.record(1), payload)
    audits = [poisoned(audit, payload) for audit in synthetic.AUDITS]
    store.write(hostile, synthetic.samples(1), audits=audits)
    for view in ("claims", "ab", "syncs", "run"):
        app = opened(store, monkeypatch, view)
        for element in (*app.markdown, *app.caption, *app.warning, *app.error, *app.info):
            assert not getattr(element.proto, "allow_html", False)
            bare = element.value.replace("\\<", "").replace("\\[", "").replace("\\:", "")
            assert "<" not in bare, (view, element.value)
            assert "![" not in bare, (view, element.value)
