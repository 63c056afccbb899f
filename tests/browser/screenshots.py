"""Takes the pictures of the README and the docs from the shipped results.

    python -m tests.browser.screenshots [--store DIR] [--out docs/img]

Look at each before it is committed: no clipped label, no text over text, no blank chart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from harness.record.store import Store
from tests.browser.browsing import ROOT, VIEWS, Visit, browser, missing_browser, serving, visit

TRACE = ROOT / "tests" / "trace" / "data" / "a100_control_step1010.json.gz"
SHOTS = (("claims", "claims-light", 1400, "light"), ("timeline", "timeline-light", 1400, "light"))
"""View, file name, width in pixels, colour scheme."""
MAX_HEIGHT = 1_500
"""Taller pages are cut: a picture in a text shows what is seen first."""


def take(opened: Any, base: str, out: Path) -> None:
    """One picture for each entry of `SHOTS`, and one of an opened trace."""
    for view, name, width, scheme in SHOTS:
        seen = visit(opened, base, width=width, scheme=scheme)
        seen.open(VIEWS[view])
        _save(seen, out / f"{name}.png", width)
    seen = visit(opened, base)
    seen.open(VIEWS["open"])
    seen.page.locator('input[type="file"]').set_input_files(str(TRACE))
    seen.page.wait_for_selector('[data-testid="stMetric"]', timeout=60_000)
    seen.settle()
    _save(seen, out / "trace-light.png", 1400, top='[data-testid="stMetric"]')


def _save(seen: Visit, path: Path, width: int, top: str | None = None) -> None:
    height = seen.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    limit = MAX_HEIGHT if width > 500 else 2 * MAX_HEIGHT
    seen.page.set_viewport_size({"width": width, "height": min(int(height), limit)})
    seen.settle()
    if top is not None:
        seen.page.locator(top).first.scroll_into_view_if_needed()
    seen.page.wait_for_timeout(500)  # charts redraw for the new height
    seen.page.screenshot(path=path)
    seen.page.context.close()
    print(path)


def main() -> int:
    """Returns 1 where there is no browser or nothing to show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default=str(ROOT / "results"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    options = parser.parse_args()
    missing = missing_browser()
    if missing or not Store(options.store).listing().records:
        reason = missing or f"{options.store} holds no run"
        print(f"No screenshots: {reason}.", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    with browser() as opened, serving(options.store) as base:
        take(opened, base, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
