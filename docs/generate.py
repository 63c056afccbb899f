"""Write what can go stale from its source: docs/cli.md from the program, the README's table from
the records under results/.

    python docs/generate.py                    write both again
    python docs/generate.py --check            exit 1 where one is stale, and write nothing
    python docs/generate.py --latest           fill the README's table from the newest runs
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.main import VERBS, main
from gapless.published_models import published_models
from harness.record.store import Store
from harness.tables.claim_rows import reproduce_table, rows_from_records
from harness.tables.grid import to_markdown
from scenarios.published import CLAIMS

if TYPE_CHECKING:
    from harness.record.records import RunRecord

ROOT = Path(__file__).resolve().parent.parent
CLI_PAGE = ROOT / "docs" / "cli.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"<!-- runs: (?P<runs>[^>]*?) -->\n.*?<!-- end of runs -->", re.DOTALL)


def cli_reference() -> str:
    """Every verb's `--help`, as one Markdown page."""
    parts = ["# Command line", "", "Written by `make docs` from `--help`."]
    for words in ([], *([verb] for verb in VERBS)):
        title = " ".join(["gapless", *words])
        parts += ["", f"## {title}", "", "```text", _help(words), "```"]
    return "\n".join(parts) + "\n"


def _help(words: list[str]) -> str:
    os.environ["COLUMNS"] = "100"  # the width the page is written for, whatever the terminal
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        main([*words, "--help"])
    return "\n".join(line.rstrip() for line in text.getvalue().strip().splitlines())


def readme_with_table(readme: str, *, latest: bool) -> str:
    """The README with its table made again from the runs that its marker names.

    With `latest` the marker names, for each claim, the newest complete run that speaks to it.
    """
    match = BLOCK.search(readme)
    if match is None:
        raise SystemExit("README.md has no block `<!-- runs: ... -->` to fill; restore it.")
    store = Store(str(ROOT / "results"))
    ids = latest_runs(store) if latest else match["runs"].split()
    records = [store.read(run) for run in ids]
    rows = rows_from_records(CLAIMS, records, modelled=published_models())
    lines = to_markdown(reproduce_table(rows)).split("\n\n", 1)
    notes = f"<details><summary>Notes</summary>\n\n{lines[1]}\n\n</details>"
    parts = [f"<!-- runs: {' '.join(ids)} -->", lines[0], steadiness(records), notes]
    block = "\n\n".join([*filter(None, parts), "<!-- end of runs -->"])
    return readme[: match.start()] + block + readme[match.end() :]


def latest_runs(store: Store) -> list[str]:
    """For each claim the newest complete run that speaks to it, each run once."""
    complete = [
        record
        for record in store.listing().records
        if record.status == "complete" and record.source == "measured"
    ]
    newest = (
        next((r.id for r in complete if any(other.id == claim.id for other in r.claims)), None)
        for claim in CLAIMS
    )
    return list(dict.fromkeys(run for run in newest if run))


def steadiness(records: list[RunRecord]) -> str:
    """A sentence where the machine was busy with other work, else nothing."""
    busy = sum(bool(record.steadiness.warnings) for record in records)
    if not busy:
        return ""
    return (
        f"{busy} of these {len(records)} runs were timed while other work kept the machine busy, "
        "which their intervals and noise floors show; each record says how busy."
    )


def generate(arguments: list[str]) -> int:
    """Write or check both pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--latest", action="store_true")
    asked = parser.parse_args(arguments)
    readme = readme_with_table(README.read_text(), latest=asked.latest)
    pages = {CLI_PAGE: cli_reference(), README: readme}
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text() != text]
    if asked.check:
        for page in stale:
            print(f"{page.relative_to(ROOT)} is stale: run `make docs`.", file=sys.stderr)
        return int(bool(stale))
    for page in stale:
        page.write_text(pages[page])
    return 0


if __name__ == "__main__":
    sys.exit(generate(sys.argv[1:]))
