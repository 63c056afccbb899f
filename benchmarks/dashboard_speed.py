"""How long a reader of the dashboard waits, and what a large store takes.

    python -m benchmarks.dashboard_speed [--runs 1000 10000] [--rounds 5]

Run from the root of the repository, with a Chromium on the PATH. Cold: a server that has shown
nothing yet, from the request until the first chart is drawn. Warm: the same page in a new tab, the
pages taking turns, so that a busy machine slows all of them alike; `server` is the script's own
share of it. Open: one listing of the store with the facts of every run, in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from harness.store import Store
from tests.browser.browsing import SETTLED, VIEWS, browser, missing_browser, serving, visit
from tests.dashboard.stores import fill_many

PAGES = ("claims", "ab", "run")
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


def seconds_to_first_chart(opened: Any, base: str, path: str) -> float:
    """From the request until a chart is drawn, in a fresh tab."""
    seen = visit(opened, base)
    began = time.perf_counter()
    seen.page.goto(f"{base}{path}", wait_until="commit")
    seen.page.wait_for_selector(FIRST_CHART, timeout=120_000)
    took = time.perf_counter() - began
    seen.page.context.close()
    return took


def seconds_of_a_rerun(opened: Any, base: str, path: str) -> float:
    """From a changed filter until the page is whole again: what a reader waits for each choice."""
    seen = visit(opened, base)
    seen.open(path)
    began = time.perf_counter()
    seen.page.get_by_role("combobox", name="Source").first.click()
    seen.page.get_by_role("option", name="measured").click()
    seen.page.wait_for_selector(SETTLED, timeout=120_000)
    seen.page.wait_for_selector(FIRST_CHART, timeout=120_000)
    took = time.perf_counter() - began
    seen.page.context.close()
    return took


def measure_pages(root: str, rounds: int) -> None:
    """Cold and warm times of the pages of one store."""
    cold = []
    with browser() as opened:
        for _ in range(rounds):
            with serving(root) as base:
                cold.append(seconds_to_first_chart(opened, base, "/"))
        warm: dict[str, list[float]] = {name: [] for name in PAGES}
        rerun: dict[str, list[float]] = {name: [] for name in PAGES}
        with serving(root) as base:
            for name in PAGES:
                seconds_to_first_chart(opened, base, VIEWS[name])
            for _ in range(rounds):
                for name in PAGES:
                    warm[name].append(seconds_to_first_chart(opened, base, VIEWS[name]))
                    rerun[name].append(seconds_of_a_rerun(opened, base, VIEWS[name]))
    print(f"  cold, first chart of the landing page: {median(cold):.2f} s")
    for name in PAGES:
        print(
            f"  warm, {name}: new tab {median(warm[name]):.2f} s, "
            f"a changed filter {median(rerun[name]):.2f} s"
        )


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
    for num_runs in options.runs:
        with tempfile.TemporaryDirectory() as folder:
            fill_many(Store(f"{folder}/runs"), num_runs)
            print(f"{num_runs:,} runs")
            measure_opening(f"{folder}/runs")
            if missing:
                print(f"  pages not measured: {missing}")
            else:
                measure_pages(f"{folder}/runs", options.rounds)


if __name__ == "__main__":
    main()
