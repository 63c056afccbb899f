"""The exported pages in a real browser, opened from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.filters import Filters
from dashboard.html_export import collect, export_file, export_site
from dashboard.snapshot import take_snapshot
from tests.browser.browsing import visit

if TYPE_CHECKING:
    from harness.record.store import Store

# A selector and no function: the policy of the page forbids what would evaluate one.
DRAWN = ".chart .main-svg"


def write(store: Store, target: Path, **options: Any) -> str:
    snapshot = take_snapshot(store.root)
    runs = collect(snapshot, snapshot.select(Filters()), redact=options.pop("redact", True))
    if options.pop("site", False):
        export_site(runs, target)
        return (target / "index.html").as_uri()
    export_file(runs, target, **options)
    return target.as_uri()


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("options", [{}, {"plotlyjs": "directory"}, {"site": True}])
def test_every_page_draws_offline(
    chromium: Any, made_up: Store, tmp_path: Path, width: int, options: dict[str, Any]
) -> None:
    target = tmp_path / ("site" if "site" in options else "out.html")
    address = write(made_up, target, **options)
    seen = visit(chromium, "", width=width)
    for name in ("claims", "ab", "syncs"):
        seen.page.goto(f"{address}#{name}")
        seen.page.wait_for_selector(DRAWN, timeout=60_000)
        assert seen.page.locator("table tr").count() > 1, name
        wide = seen.page.evaluate("document.body.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} scrolls sideways by {wide} px"
    seen.page.goto(f"{address}#runs")
    seen.page.locator("ul.runs a").first.click()
    seen.page.wait_for_selector(DRAWN, timeout=60_000)
    assert "Environment" in seen.page.inner_text("main")
    assert seen.errors == []
    assert seen.outside == []


def test_only_what_moved_and_the_csv_work(chromium: Any, made_up: Store, tmp_path: Path) -> None:
    seen = visit(chromium, "")
    seen.page.goto(f"{write(made_up, tmp_path / 'out.html')}#ab")
    seen.page.wait_for_selector(DRAWN, timeout=60_000)
    rows = seen.page.locator("tbody tr:visible")
    moved = rows.count()
    seen.page.get_by_label("only what moved").uncheck()
    assert rows.count() > moved
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 1 + rows.count()
    assert lines[0].startswith("run,scenario,model")


def test_a_run_can_be_linked_and_one_that_is_not_there_says_so(
    chromium: Any, made_up: Store, tmp_path: Path
) -> None:
    address = write(made_up, tmp_path / "out.html")
    run_id = made_up.listing().records[0].id
    seen = visit(chromium, "")
    seen.page.goto(f"{address}#run={run_id}")
    seen.page.wait_for_selector(DRAWN, timeout=60_000)
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="Download CSV").first.click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert all(line.startswith(f"{run_id},") for line in lines[1:])
    seen.page.goto(f"{address}#run=gone")
    seen.page.wait_for_selector("text=This export has no run gone.")


def test_hostile_text_does_nothing_and_a_foreign_script_is_blocked(
    chromium: Any, hostile: Store, tmp_path: Path
) -> None:
    address = write(hostile, tmp_path / "out.html", redact=False)
    seen = visit(chromium, "")
    for name in ("claims", "ab", "syncs", *(f"run={r.id}" for r in hostile.listing().records)):
        seen.page.goto(f"{address}#{name}")
        seen.page.wait_for_selector(DRAWN, timeout=60_000)
        assert seen.page.evaluate("window.__hit") is None, name
        assert seen.page.locator('a[href^="javascript"]').count() == 0, name
    assert seen.outside == []
    assert seen.errors == []
    seen.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.__hit = 1';"
        " document.body.append(s); }"
    )
    assert seen.page.evaluate("window.__hit") is None, "the policy lets a foreign script run"
    assert any("Content Security Policy" in error for error in seen.errors)


def test_without_compression_streams_nothing_is_half_shown(
    chromium: Any, made_up: Store, tmp_path: Path
) -> None:
    seen = visit(chromium, "")
    seen.page.add_init_script("delete window.DecompressionStream")
    seen.page.goto(write(made_up, tmp_path / "out.html"))
    seen.page.wait_for_selector("text=This page needs a newer browser")
