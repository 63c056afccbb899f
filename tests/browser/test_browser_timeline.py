"""The timelines of a run in a real browser: zoom by dragging, back, and by a link."""

from __future__ import annotations

from typing import Any

from tests.browser.browsing import Visit, visit

RANGE = "document.querySelector('.js-plotly-plot').layout.xaxis.range"


def drag_over(seen: Visit, start: float, end: float) -> None:
    """Drag over the chart from one share of its width to another."""
    box = seen.page.locator(".nsewdrag").first.bounding_box()
    mouse, y = seen.page.mouse, box["y"] + 40
    mouse.move(box["x"] + start * box["width"], y)
    mouse.down()
    mouse.move(box["x"] + (start + end) / 2 * box["width"], y + 10, steps=5)
    mouse.move(box["x"] + end * box["width"], y + 20, steps=5)
    mouse.up()
    seen.page.get_by_role("button", name="Whole span", disabled=False).wait_for()
    seen.settle()


def test_a_drag_zooms_in_and_the_link_keeps_it(chromium: Any, made_up_server: str) -> None:
    seen = visit(chromium, made_up_server)
    seen.open("/timeline")
    whole = seen.page.evaluate(RANGE)
    drag_over(seen, 0.25, 0.5)
    left, right = seen.page.evaluate(RANGE)
    span = whole[1]
    assert abs(left - 0.25 * span) < 0.02 * span
    assert abs(right - 0.5 * span) < 0.02 * span
    assert not seen.errors

    seen.page.get_by_role("button", name="Copy link").click()
    link = seen.page.locator('[data-testid="stPopoverBody"] code').inner_text()
    again = visit(chromium, "")
    again.open(link)
    shown = again.page.evaluate(RANGE)
    assert abs(shown[0] - left) < 0.01
    assert abs(shown[1] - right) < 0.01

    seen.page.keyboard.press("Escape")
    seen.page.get_by_role("button", name="Whole span").click()
    seen.page.get_by_role("button", name="Whole span", disabled=True).wait_for()
    seen.settle()
    assert seen.page.evaluate(RANGE) == whole


def test_a_window_that_makes_no_sense_shows_the_whole(chromium: Any, made_up_server: str) -> None:
    for window in ("window=5&window=1", "window=x&window=y", "window=nan&window=inf", "window=1"):
        seen = visit(chromium, made_up_server)
        seen.open(f"/timeline?{window}")
        start, end = seen.page.evaluate(RANGE)
        assert start == 0, window
        assert end > 1, window
        assert seen.page.locator('[data-testid="stException"]').count() == 0, window
        seen.page.context.close()
