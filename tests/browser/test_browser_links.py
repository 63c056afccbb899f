"""Every link and every option of every page and of the export lands on its own run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from harness.record.store import Store
from tests.browser.browsing import VIEWS, serving, visit
from tests.browser.conftest import TRACE
from tests.browser.test_browser_export import DRAWN, write
from tests.dashboard import synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.browser.browsing import Visit

CONTROLS = {"/run": ["id"], "/ab": ["of", "base"], "/syncs": ["of"], "/timeline": ["of"]}
LABELS = {"id": "Run", "of": "Run", "base": "Base"}


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Runs whose titles would be one but for their ids, and one of another GPU."""
    store = Store(str(tmp_path_factory.mktemp("alike")))
    trace = TRACE.read_bytes()
    for number, gpu in ((1, None), (2, None), (3, "NVIDIA H200")):
        synthetic.write(
            store,
            synthetic.record(number, gpu=gpu),
            audits=synthetic.AUDITS,
            traces={"baseline": trace},
        )
    return store


@pytest.fixture(scope="module")
def server(alike: Store) -> Iterator[str]:
    with serving(alike.root) as base:
        yield base


def ids(store: Store) -> list[str]:
    return [record.id for record in store.listing().records]


def query(seen: Visit) -> dict[str, list[str]]:
    return parse_qs(urlsplit(seen.page.url).query)


def box(seen: Visit, label: str) -> Any:
    return seen.page.get_by_role("combobox", name=label, exact=True).first


def option_of(seen: Visit, label: str, number: int) -> Any:
    """An option of a list, opened. A page that scrolls or is drawn again closes it at once."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

    field, option = box(seen, label), seen.page.get_by_role("option").nth(number)
    field.scroll_into_view_if_needed()
    seen.settle()
    for _ in range(5):
        field.click()
        try:
            option.wait_for(state="visible", timeout=3_000)
        except PlaywrightTimeoutError:
            continue
        return option
    raise AssertionError(f"{label} does not open")


@pytest.mark.parametrize("path", CONTROLS)
def test_every_option_of_a_list_opens_its_own_run_again_from_its_address(
    chromium: Any, server: str, alike: Store, path: str
) -> None:
    for name in CONTROLS[path]:
        seen = visit(chromium, server)
        seen.open(path)
        found = []
        for number in range(len(ids(alike))):
            option = option_of(seen, LABELS[name], number)
            title = option.inner_text().strip()
            option.click()
            seen.settle()
            (run_id,) = query(seen)[name]
            assert run_id.endswith(title.rsplit(" · ", 1)[-1]) or "H200" in title
            found.append(run_id)
            again = visit(chromium, "")
            again.open(seen.page.url)
            assert box(again, LABELS[name]).input_value() == title, (path, name, run_id)
            assert query(again)[name] == [run_id]
            again.page.context.close()
        assert sorted(found) == sorted(ids(alike))
        assert seen.errors == []
        seen.page.context.close()


def test_every_link_to_a_run_lands_on_it(chromium: Any, server: str, alike: Store) -> None:
    followed = set()
    for path in VIEWS.values():
        seen = visit(chromium, server)
        seen.open(path)
        links = seen.page.locator('[data-testid="stMain"] a[href*="/run?id="]')
        for address in {links.nth(n).get_attribute("href") for n in range(links.count())}:
            (run_id,) = parse_qs(urlsplit(address).query)["id"]
            again = visit(chromium, "")
            again.open(address)
            assert run_id in again.page.inner_text('[data-testid="stMain"]')
            assert query(again)["id"] == [run_id]
            again.page.context.close()
            followed.add(run_id)
        seen.page.context.close()
    assert followed


def test_base_and_others_of_an_address_are_chosen(chromium: Any, server: str, alike: Store) -> None:
    h200, two, one = ids(alike)
    seen = visit(chromium, server)
    seen.open(f"/ab?base={one}&against={two}&against={h200}")
    assert query(seen)["base"] == [one]
    assert query(seen)["against"] == [two, h200]
    assert box(seen, "Base").input_value().endswith(one[-6:])
    warned = seen.page.locator('[data-testid="stAlert"]').all_inner_texts()
    assert any("Not comparable with the base" in text and "H200" in text for text in warned)
    assert "Nothing moved" not in "".join(warned).replace("Nothing moved in", "", 1)


CLICKS = {
    "/ab": [("radio", "forward", "phase"), ("radio", "Time", "show"), ("switch", "", "moved")],
    "/run": [("radio", "backward", "phase")],
}


@pytest.mark.parametrize("path", CLICKS)
def test_the_state_after_each_click_is_in_the_address(
    chromium: Any, server: str, path: str
) -> None:
    seen = visit(chromium, server)
    seen.open(path)
    for role, label, name in CLICKS[path]:
        if role == "switch":
            seen.page.get_by_text("Only what moved", exact=True).click()
        else:
            seen.page.get_by_role(role, name=label, exact=True).click()
        seen.settle()
        assert name in query(seen), (path, name)
        shown = seen.page.inner_text('[data-testid="stMain"]')
        again = visit(chromium, "")
        again.open(seen.page.url)
        assert again.page.inner_text('[data-testid="stMain"]') == shown, (path, name)
        again.page.context.close()


def test_choices_of_syncs_and_what_if_are_in_the_address(
    chromium: Any, made_up_server: str
) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/what-if")
    option_of(seen, "Arm", 1).click()
    seen.settle()
    (arm,) = query(seen)["arm"]
    again = visit(chromium, "")
    again.open(seen.page.url)
    assert box(again, "Arm").input_value() == arm
    slider = seen.page.get_by_role("slider", name="GPU")
    slider.first.press("ArrowLeft")
    seen.settle()
    assert "on" in query(seen)


def test_every_link_and_run_of_an_export_lands_on_its_own_run(
    chromium: Any, alike: Store, tmp_path: Path
) -> None:
    for options in ({}, {"site": True}):
        target = tmp_path / ("site" if options else "out.html")
        address = write(alike, target, **options)
        seen = visit(chromium, "")
        links = set()
        for name in ("claims", "ab", "syncs", "runs"):
            seen.page.goto(f"{address}#{name}")
            seen.page.wait_for_selector("main h1")
            found = seen.page.locator("main a")
            for number in range(found.count()):
                links.add(found.nth(number).get_attribute("href"))
        assert len(links) == len(ids(alike))
        for link in links:
            run_id = re.split(r"[=/]", link.removesuffix(".html"))[-1]
            folder = address.rsplit("/", 1)[0]
            seen.page.goto(f"{folder}/{link}" if options else f"{address}{link}")
            seen.page.wait_for_selector(DRAWN, timeout=60_000)
            assert run_id in seen.page.inner_text("main")
            title = seen.page.inner_text("h1")
            assert run_id[-6:] in title or "H200" in title
        seen.page.goto(f"{address}#no-such-page")
        seen.page.wait_for_selector("text=no such page")
        assert seen.errors == []
        seen.page.context.close()
