"""The address of a page: each choice is in it, each link opens its own run, and what is unknown in
it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from dashboard.facets import facets_of, run_titles
from tests.dashboard import synthetic
from tests.dashboard.stores import fill_modelled
from tests.dashboard.test_views import TRACE, opened, words

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

    from harness.record.records import RunRecord
    from harness.record.store import Store

KEYS = {"run": "id", "ab": "of", "syncs": "of", "timeline": "of"}


def three_alike(store: Store) -> list[RunRecord]:
    """Runs of one minute on one machine, so that their titles would be one."""
    trace = TRACE.read_bytes()
    return [
        synthetic.write(
            store, synthetic.record(number), audits=synthetic.AUDITS, traces={"baseline": trace}
        )
        for number in (1, 2, 3)
    ]


def link_of(app: AppTest) -> dict[str, list[str]]:
    """What the link under “Copy link” holds."""
    (link,) = (code.value for code in app.code if code.value.startswith("http"))
    return parse_qs(urlsplit(link).query)


def test_titles_are_unique_and_tell_the_fixes() -> None:
    listed = [facets_of(synthetic.record(number)) for number in (1, 2, 3)]
    titles = run_titles(listed)
    assert len(set(titles.values())) == 3
    assert all("packed-metadata" in title for title in titles.values())
    alone = run_titles(listed[:1])[listed[0].id]
    assert listed[0].id[-6:] not in alone


def test_run_ids_that_end_alike_still_have_titles_of_their_own() -> None:
    one = facets_of(synthetic.record(1))
    two = facets_of(msgspec.structs.replace(synthetic.record(1), id=f"x{one.id}"))
    assert len(set(run_titles([one, two]).values())) == 2


@pytest.mark.parametrize("view", KEYS)
def test_each_run_opens_by_its_id(store: Store, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    key = KEYS[view]
    for made in three_alike(store):
        app = opened(store, monkeypatch, view, **{key: made.id})
        assert app.selectbox(key=f"{view}-{key}").value == made.id
        assert app.query_params[key] in (made.id, [made.id])
        assert link_of(app)[key] == [made.id]


@pytest.mark.parametrize("view", KEYS)
def test_a_run_beyond_the_filters_opens_too(
    store: Store, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    made = three_alike(store)[0]
    synthetic.write(
        store,
        synthetic.record(9, gpu="NVIDIA H200"),
        audits=synthetic.AUDITS,
        traces={"baseline": TRACE.read_bytes()},
    )
    app = opened(store, monkeypatch, view, gpu="NVIDIA H200", **{KEYS[view]: made.id})
    assert app.selectbox(key=f"{view}-{KEYS[view]}").value == made.id


def test_every_run_that_is_chosen_is_in_the_address(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = three_alike(store)
    app = opened(store, monkeypatch, "ab", base=one.id, against=two.id)
    assert app.selectbox(key="ab-base").value == one.id
    assert app.multiselect(key="ab-against").value == [two.id]
    app.multiselect(key="ab-against").set_value([two.id, three.id]).run()
    assert app.query_params["against"] == [two.id, three.id]
    app.selectbox(key="ab-of").select(three.id).run()
    assert link_of(app)["of"] == [three.id]
    assert link_of(app)["base"] == [one.id]


def test_the_window_of_a_timeline_is_in_the_address(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_alike(store)
    app = opened(store, monkeypatch, "timeline")
    assert "window" not in app.query_params
    (slider,) = app.slider
    step = slider.step
    slider.set_range(100 * step, 300 * step).run()
    assert [float(at) for at in app.query_params["window"]] == [
        pytest.approx(100 * step, abs=step),
        pytest.approx(300 * step, abs=step),
    ]
    assert link_of(app)["window"] == app.query_params["window"]
    next(button for button in app.button if button.label == "Whole span").click().run()
    assert "window" not in app.query_params


@pytest.mark.parametrize(
    ("view", "name", "value"),
    [
        ("claims", "gpu", "H9000"),
        ("claims", "fix", "none-such"),
        ("claims", "since", "soon"),
        ("ab", "phase", "sideways"),
        ("ab", "show", "Upside down"),
        ("ab", "of", "gone"),
        ("ab", "base", "gone"),
        ("ab", "against", "gone"),
        ("ab", "colour", "blue"),
        ("syncs", "of", "gone"),
        ("syncs", "after", "no such arm"),
        ("timeline", "of", "gone"),
        ("timeline", "window", "5"),
        ("run", "id", "gone"),
        ("run", "phase", "sideways"),
        ("whatif", "on", "H9000"),
        ("whatif", "size", "huge"),
        ("whatif", "setup", "odd"),
        ("whatif", "arm", "no such arm"),
    ],
)
def test_an_unknown_value_in_the_address_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch, view: str, name: str, value: str
) -> None:
    three_alike(store)
    fill_modelled(store)
    app = opened(store, monkeypatch, view, **{name: value})
    said = [one.value.replace("\\", "") for one in app.warning]
    shown = name if name == "colour" else value
    assert any(shown in sentence for sentence in said), (said, words(app))


def test_runs_that_do_not_compare_have_a_table_of_differences_and_no_verdict(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = synthetic.write(store, synthetic.record(1))
    other = synthetic.write(store, synthetic.record(2, gpu="NVIDIA H200"))
    app = opened(store, monkeypatch, "ab", base=base.id, against=other.id)
    told = words(app).replace("\\", "")
    assert "Not comparable with the base, so without a verdict" in told
    assert "Nothing moved" not in told
    assert "{" not in told
    frame = next(f.value for f in app.dataframe if "Fact" in f.value.columns)
    assert ("GPU", "cpu", "NVIDIA H200") in set(
        zip(frame["Fact"], frame["Base"], frame["This run"], strict=True)
    )
    assert not any("Moved" in f.value.columns for f in app.dataframe)


def test_the_badges_of_a_fix_sum_to_its_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    three_alike(store)
    fill_modelled(store)
    app = opened(store, monkeypatch, "claims")
    badges = "\n".join(one.value for one in app.markdown).replace("\\", "")
    counts = re.findall(r"(?:measured|modelled|no figure): (\d+)", badges)
    frame = app.dataframe[0].value
    assert sum(map(int, counts)) == sum(frame["Source"] != "published")


def test_a_filter_that_drops_what_was_chosen_chooses_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = three_alike(store)
    other = synthetic.write(store, synthetic.record(9, gpu="NVIDIA H200"))
    app = opened(store, monkeypatch, "ab")
    app.selectbox(key="ab-of").select(one.id).run()
    app.multiselect(key="ab-against").set_value([two.id]).run()
    app.multiselect(key="gpu").set_value(["NVIDIA H200"]).run()
    assert not app.exception
    assert app.selectbox(key="ab-of").value == other.id
    assert app.multiselect(key="ab-against").value == []
    assert link_of(app)["of"] == [other.id]
    assert "against" not in link_of(app)


def test_runs_that_do_not_speak_are_counted_and_linked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_alike(store)
    app = opened(store, monkeypatch, "claims")
    (label,) = (one.label for one in app.expander if one.label.startswith("Not shown"))
    spoken = set(app.dataframe[0].value["Run"]) - {""}
    links = [line for line in words(app).splitlines() if "/run?id=" in line]
    assert len(spoken) + len(links) == 3
    assert f"{len(links)} other run" in label
    assert not any(run in line for run in spoken for line in links)
