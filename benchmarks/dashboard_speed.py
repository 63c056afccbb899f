"""How long a reader of the dashboard waits, and what a large store takes.

    python -m benchmarks.dashboard_speed [--runs 1000 10000] [--rounds 5]

Run from the root of the repository, with a Chromium on the PATH. Cold: a server that has shown
nothing yet and a browser with an empty cache, until anything is painted, until the title is there
and until the first chart is drawn; a bare Streamlit page with one chart takes turns with it, since
most of that time is the browser loading Streamlit and Plotly. Warm: in an open tab, from choosing
another page until its chart is drawn. Server: the script of a page alone. Open: one listing of the
store with the facts of every run, in a process of its own.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from streamlit.testing.v1 import AppTest

from harness.record.store import Store
from tests.browser.browsing import (
    ROOT,
    SETTLED,
    browser,
    missing_browser,
    serving,
    started,
    visit,
)
from tests.dashboard.stores import fill_many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.browsing import Visit

PAGES = ("A/B", "Run", "Claims")
BARE = """
import streamlit as st
st.title("Bare")
st.plotly_chart({"data": [{"type": "bar", "x": [1, 2], "y": [3, 4]}], "layout": {}})
"""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
FIRST_CHART = '[data-testid="stPlotlyChart"] .main-svg'
OPEN = """
import resource, sys, time
from dashboard.snapshot import take_snapshot
began = time.perf_counter()
found = take_snapshot(sys.argv[1])
took = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{len(found.facets)} {took:.3f} {peak:.0f}")
"""


def cold(opened: Any, base: str) -> dict[str, float]:
    """Seconds from the request to the first paint, title and chart, in a fresh browser.

    The first paint is the browser's own figure, which starts with the request; the other two are
    seen from outside and include opening the tab.
    """
    seen = visit(opened, base)
    began = time.perf_counter()
    seen.page.goto(base, wait_until="commit")
    seen.page.wait_for_selector("h1", timeout=120_000)
    title_s = time.perf_counter() - began
    seen.page.wait_for_selector(FIRST_CHART, timeout=120_000)
    chart_s = time.perf_counter() - began
    paint_ms = seen.page.evaluate(FIRST_PAINT)
    seen.page.context.close()
    return {"paint": paint_ms / 1e3, "title": title_s, "chart": chart_s}


@contextmanager
def bare_page() -> Iterator[str]:
    """A Streamlit server whose page has one title and one chart."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bare.py").write_text(BARE)
        with started(
            ["-m", "streamlit", "run", f"{folder}/bare.py", "--server.headless=true"]
        ) as base:
            yield base


def measure_pages(root: str, rounds: int) -> None:
    """Cold and warm times of the pages of one store."""
    times: dict[str, list[float]] = {}
    with browser() as opened:
        for _ in range(rounds):
            for name, server in (("gapless", serving(root)), ("bare", bare_page())):
                with server as base:
                    for what, took_s in cold(opened, base).items():
                        times.setdefault(f"{name} {what}", []).append(took_s)
        with serving(root) as base:
            seen = visit(opened, base)
            seen.open("/")
            for number in range(rounds + 1):
                for title in PAGES:
                    took = _switch(seen, title)
                    if number:  # the first round loads what the browser keeps
                        times.setdefault(title, []).append(took)
    middle = {name: median(values) for name, values in times.items()}
    for what in ("paint", "title", "chart"):
        ours, bare = middle[f"gapless {what}"], middle[f"bare {what}"]
        print(f"  cold, first {what}: {ours:.2f} s, {ours / bare:.2f} times a bare Streamlit page")
    for title in PAGES:
        print(f"  warm, {title}: {middle[title]:.2f} s")


def _switch(seen: Visit, title: str) -> float:
    """Seconds from choosing a page in the sidebar until its own chart is drawn."""
    before = seen.page.locator("h1").inner_text()
    began = time.perf_counter()
    seen.page.get_by_role("link", name=title, exact=True).click()
    seen.page.wait_for_function(
        "(before) => document.querySelector('h1')?.innerText !== before", arg=before
    )
    seen.page.wait_for_selector(SETTLED)
    seen.page.wait_for_selector(FIRST_CHART)
    return time.perf_counter() - began


def measure_server(root: str, rounds: int) -> None:
    """The script of each page, without a browser."""
    os.environ["GAPLESS_STORE"] = root
    for path in ("claims", "ab", "run"):
        app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=120).run()
        app = app.switch_page(f"views/{path}_view.py").run()
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            app.run()
            took.append(time.perf_counter() - began)
        print(f"  server, {path}: {1e3 * median(took):.0f} ms")


def measure_opening(root: str) -> None:
    """Time and memory of the first listing, with the index to be made and then with it."""
    for word in ("index to be made", "with the index"):
        done = subprocess.run(
            [sys.executable, "-c", OPEN, root], capture_output=True, text=True, check=True
        )
        number, took_s, peak_mb = done.stdout.split()
        print(f"  open, {word}: {int(number):,} runs in {took_s} s, {peak_mb} MB at most")


def main() -> None:
    """Fill and measure a store of each size asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    missing = missing_browser()
    logging.disable(logging.WARNING)  # Streamlit warns that it runs without a server
    for num_runs in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            fill_many(Store(f"{folder}/runs"), num_runs)
            print(f"{num_runs:,} runs")
            measure_opening(f"{folder}/runs")
            measure_server(f"{folder}/runs", options.rounds)
            if missing:
                print(f"  pages not measured: {missing}")
            else:
                measure_pages(f"{folder}/runs", options.rounds)


if __name__ == "__main__":
    main()
