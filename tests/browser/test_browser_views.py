"""The pages in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.first_visit import EARLY
from harness.record.store import Store
from tests.browser.browsing import ROOT, VIEWS, serving, visit
from tests.dashboard import synthetic

TRACE = ROOT / "tests" / "trace" / "data" / "hta_alexnet_a100_cuda_sync_events.json.gz"
TEXT_CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
LOADED = "performance.getEntriesByType('resource').map((one) => [one.name, one.startTime])"
UNNAMED = """() => [...document.querySelectorAll('button, input, select, textarea, a[href]')]
  .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 0)
  .filter((node) => node.tabIndex >= 0)
  .filter((node) => !(node.getAttribute('aria-label') || node.title || node.innerText.trim()
    || node.getAttribute('aria-labelledby') || (node.labels && node.labels.length)
    || node.placeholder || node.closest('label')))
  .map((node) => node.outerHTML.slice(0, 160))"""


def shipped() -> str | None:
    """The records that come with gapless, where there are any."""
    root = ROOT / "results"
    return str(root) if Store(str(root)).listing().records else None


@pytest.mark.parametrize("width", [390, 1400])
def test_every_view_loads_clean(chromium: Any, made_up_server: str, width: int) -> None:
    for name, path in VIEWS.items():
        seen = visit(chromium, made_up_server, width=width)
        seen.open(path)
        assert seen.page.locator('[data-testid="stException"]').count() == 0, name
        assert seen.errors == [], name
        assert seen.outside == [], name
        wide = seen.page.evaluate(
            "document.querySelector('[data-testid=stMain]').scrollWidth - "
            "document.querySelector('[data-testid=stMain]').clientWidth"
        )
        assert wide <= 1, f"{name} scrolls sideways by {wide} px"
        seen.page.context.close()


def test_every_view_loads_with_the_shipped_results(chromium: Any) -> None:
    root = shipped()
    if root is None:
        pytest.skip("results/ holds no run yet: gapless reproduce writes some")
    with serving(root) as base:
        for name, path in VIEWS.items():
            seen = visit(chromium, base)
            seen.open(path)
            assert seen.page.locator('[data-testid="stException"]').count() == 0, name
            assert seen.errors == [], name
            assert seen.outside == [], name
            seen.page.context.close()


def test_a_filter_is_in_the_address_and_a_reload_restores_it(
    chromium: Any, made_up_server: str
) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/ab")
    seen.page.get_by_role("combobox", name="GPU").first.click()
    seen.page.get_by_role("option", name="NVIDIA H200").click()
    seen.page.keyboard.press("Escape")
    seen.settle()
    assert parse_qs(urlsplit(seen.page.url).query)["gpu"] == ["NVIDIA H200"]
    chart = seen.page.locator('[data-testid="stPlotlyChart"]').first
    assert "NVIDIA H200" in chart.text_content()
    assert "· cpu" not in chart.text_content()
    seen.page.reload(wait_until="domcontentloaded")
    seen.settle()
    assert "gpu=NVIDIA" in seen.page.url
    chart = seen.page.locator('[data-testid="stPlotlyChart"]').first
    assert "· cpu" not in chart.text_content()


def test_a_copied_link_opens_the_same_page_again(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/ab?gpu=cpu&show=Ladder&phase=forward")
    seen.page.get_by_role("button", name="Copy link").click()
    link = seen.page.locator('[data-testid="stPopoverBody"] code').inner_text()
    assert set(parse_qs(urlsplit(link).query)) >= {"gpu", "show", "phase"}
    again = visit(chromium, "")
    again.open(link)
    again.page.locator('[data-testid="stDataFrame"]').first.wait_for()
    assert again.page.get_by_role("radio", name="Ladder").get_attribute("aria-checked") == "true"
    assert "· cpu" in again.page.locator('[data-testid="stPlotlyChart"]').first.text_content()


def test_the_link_of_the_landing_page_is_the_root(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/?gpu=cpu")
    seen.page.get_by_role("button", name="Copy link").click()
    link = seen.page.locator('[data-testid="stPopoverBody"] code').inner_text()
    assert link == f"{made_up_server}/?gpu=cpu"


def test_a_link_to_a_run_that_is_gone_says_so(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/run?id=20200101T000000Z-gone-cpu-000000")
    assert "is not in this store" in seen.page.locator('[data-testid="stAlert"]').inner_text()


def test_an_uploaded_trace_shows_its_syncs(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/open")
    seen.page.locator('input[type="file"]').set_input_files(str(TRACE))
    seen.page.wait_for_selector('[data-testid="stPlotlyChart"] .main-svg', timeout=60_000)
    seen.settle()
    assert seen.page.locator('[data-testid="stMetricValue"]').first.inner_text() not in ("", "-")
    assert seen.page.get_by_text("Costliest places").count() == 1
    assert seen.page.locator('[data-testid="stPlotlyChart"]').count() >= 3
    assert seen.errors == []
    assert seen.outside == []


def test_the_script_of_charts_loads_once_and_early(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/ab")
    began: dict[str, list[float]] = {}
    for address, start_ms in seen.page.evaluate(LOADED):
        if not address.endswith(".css"):
            began.setdefault(address.rsplit("/", 1)[-1].split(".")[0], []).append(start_ms)
    assert len(began[EARLY]) == 1
    assert began[EARLY][0] < min(began["host-config"])


def test_a_new_run_appears_on_reload(chromium: Any, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "growing"))
    synthetic.write(store, synthetic.record(1))
    with serving(store.root) as base:
        seen = visit(chromium, base)
        seen.open("/")
        assert "1 run in" in seen.page.inner_text('[data-testid="stSidebar"]')
        synthetic.write(store, synthetic.record(2))
        for _ in range(20):  # a snapshot counts as fresh for two seconds
            seen.page.reload(wait_until="domcontentloaded")
            seen.settle()
            if "2 runs in" in seen.page.inner_text('[data-testid="stSidebar"]'):
                return
        pytest.fail("the new run is not shown after 20 reloads")


def test_hostile_text_does_nothing_in_the_app(chromium: Any, hostile: Store) -> None:
    with serving(hostile.root) as base:
        for path in VIEWS.values():
            seen = visit(chromium, base)
            seen.open(path)
            assert seen.page.evaluate("window.__hit") is None, path
            assert seen.outside == [], path
            assert seen.page.locator('a[href^="javascript"]').count() == 0, path
            assert seen.page.locator('[data-testid="stException"]').count() == 0, path
            seen.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_enough_contrast(chromium: Any, made_up_server: str, scheme: str) -> None:
    for name, path in VIEWS.items():
        seen = visit(chromium, made_up_server, scheme=scheme)
        seen.open(path)
        assert seen.page.evaluate(TEXT_CONTRAST) == [], name
        seen.page.context.close()


def test_every_control_has_a_name_and_every_chart_has_words(
    chromium: Any, made_up_server: str
) -> None:
    for name, path in VIEWS.items():
        seen = visit(chromium, made_up_server)
        seen.open(path)
        assert seen.page.evaluate(UNNAMED) == [], name
        charts = seen.page.locator('[data-testid="stPlotlyChart"]')
        for number in range(charts.count()):
            marked = charts.nth(number).locator("xpath=descendant-or-self::*[@aria-label]")
            assert marked.count() > 0, name
        assert seen.page.locator("h1").count() == 1, name
        seen.page.context.close()


def test_the_keyboard_reaches_the_pages(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/")
    for _ in range(40):
        seen.page.keyboard.press("Tab")
        if "A/B" in (seen.page.evaluate("document.activeElement.innerText") or ""):
            break
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url("**/ab*")
    seen.settle()
    assert seen.page.locator("h1").inner_text() == "A/B"
