"""Records as a page that needs no server: one file, or a folder for any web host.

The page loads nothing from anywhere. Its data and Plotly travel compressed inside it, and its own
content security policy allows the scripts it came with and no other.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from dashboard.contents import arms_page, claims_page, run_page, syncs_page, whatif_page
from dashboard.contents.arms_page import ArmChoices
from dashboard.contents.blocks import Columns, Details, Grid, Head, Page
from dashboard.contents.run_page import RunChoices
from dashboard.facets import run_titles
from dashboard.filters import Filters
from dashboard.snapshot import only, redacted
from harness.boundary.atomic_files import replace_file
from harness.boundary.foreign_text import visible_values
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.contents.blocks import Block
    from dashboard.snapshot import Snapshot
    from harness.record.records import RunRecord

PlotlyJs = Literal["inline", "cdn", "directory"]

ASSETS = Path(__file__).resolve().parent / "assets"
PLOTLY_FILE = "plotly.min.js"
CDN = "https://cdn.plot.ly"
UNREADABLE = "samples.parquet or audits.json of this run cannot be used, so they are left out."
MAX_POINTS = 60_000
"""Samples drawn over all runs of one export: 200 runs stay far below 6 MB."""


def collect(
    found: Snapshot,
    records: Sequence[RunRecord],
    *,
    redact: bool,
    public: frozenset[str] = frozenset(),
) -> Snapshot:
    """A snapshot of these runs alone, redacted where asked but for `public` texts."""
    chosen = only(found, records)
    return redacted(chosen, public) if redact else chosen


def export_file(found: Snapshot, target: Path, plotlyjs: PlotlyJs = "inline") -> None:
    """Write one page with all runs. Raises `UsageError` where it cannot be written."""
    runs = [_without_csv(page) for page in _run_pages(found)]
    files = {target.name: _document(_front_pages(found), runs, plotlyjs, prefix="")}
    if plotlyjs == "directory":
        files[PLOTLY_FILE] = get_plotlyjs()
    _write(target.parent, files)


def export_site(found: Snapshot, target: Path) -> None:
    """Write a folder of pages: an index, a page a run, and one script that all share."""
    run_pages = _run_pages(found)
    links = [
        {"id": head.id, "title": head.name, "href": f"run/{head.id}.html"}
        for head in (page.head for page in run_pages)
    ]
    front = _document(_front_pages(found), [], "directory", prefix="", links=links)
    files = {"index.html": front, PLOTLY_FILE: get_plotlyjs()}
    for page in run_pages:
        files[f"run/{page.head.id}.html"] = _document([page], [], "directory", prefix="../")
    _write(target, files)


def _front_pages(found: Snapshot) -> list[Page]:
    modelled = whatif_page.modelled_runs(found, Filters())
    pages = [
        Page(claims_page.HEAD, claims_page.claims_page(found, Filters())),
        Page(arms_page.HEAD, arms_page.arms_page(found, ArmChoices(Filters()))),
        Page(syncs_page.HEAD, syncs_page.front_page(found)),
    ]
    if modelled.rows:
        pages.append(Page(whatif_page.HEAD, whatif_page.whatif_page(modelled)))
    return pages


def _run_pages(found: Snapshot) -> list[Page]:
    choices = RunChoices(max_points=max(100, MAX_POINTS // max(len(found.records), 1)))
    titles = run_titles(found.facets)
    heads = {run: Head(run, name, name, run_page.HEAD.question) for run, name in titles.items()}
    return [
        Page(heads[record.id], run_page.run_page(found, record, choices))
        for record in found.records
    ]


def _without_csv(page: Page) -> Page:
    """The table of a run's arms refers to that of all runs, which lies in the same file; its other
    tables are short enough to be copied."""
    blocks = tuple(
        msgspec.structs.replace(block, csv="", csv_run=page.head.id if block.name == "arms" else "")
        if isinstance(block, Grid) and block.name in ("arms", "environment", "parity")
        else block
        for block in page.blocks
    )
    return msgspec.structs.replace(page, blocks=blocks)


def _document(
    pages: Sequence[Page],
    runs: Sequence[Page],
    plotlyjs: PlotlyJs,
    *,
    prefix: str,
    links: Sequence[dict[str, str]] = (),
) -> str:
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    blocks, (page_outlines, run_outlines) = _laid_out(pages, runs)
    data = {
        "blocks": blocks,
        "pages": page_outlines,
        "runs": run_outlines,
        "links": links,
        "made": made,
        "home": prefix,
    }
    script = (ASSETS / "export.js").read_text(encoding="utf-8")
    style = (ASSETS / "export.css").read_text(encoding="utf-8")
    plotly_tag, allowed = _plotly(plotlyjs, prefix)
    policy = (
        f"default-src 'none'; script-src {allowed} {_source_hash(script)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = pages[0].head.title if len(pages) == 1 else "gapless results"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        "<noscript>This page draws its charts and tables with the script inside it: "
        "allow scripts for this file.</noscript>\n"
        '<div id="page"></div>\n'
        f"{_packed('data', msgspec.json.encode(visible_values(msgspec.to_builtins(data))))}\n"
        f"{plotly_tag}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _laid_out(*groups: Sequence[Page]) -> tuple[list[Any], list[list[dict[str, Any]]]]:
    """All blocks but those that hold others, those alike next to each other, and pages that point
    to them by number.

    gzip sees 32 KiB back: the same chart of two runs must be neighbours for it to see that they
    are alike, which halves the file.
    """
    leaves: list[Block] = []

    def outline(block: Block) -> Any:
        if isinstance(block, Details):
            inner = [outline(one) for one in block.blocks]
            return {"type": "details", "label": block.label, "blocks": inner}
        if isinstance(block, Columns):
            return {
                "type": "columns",
                "groups": [[outline(one) for one in group] for group in block.groups],
            }
        leaves.append(block)
        return len(leaves) - 1

    outlines = [
        [
            {
                **msgspec.structs.asdict(page.head),
                "blocks": [outline(block) for block in page.blocks],
            }
            for page in pages
        ]
        for pages in groups
    ]
    order = sorted(range(len(leaves)), key=lambda n: (type(leaves[n]).__name__, _name(leaves[n])))
    position = {number: place for place, number in enumerate(order)}
    blocks = [_short(msgspec.to_builtins(leaves[number])) for number in order]
    return blocks, _renumbered(outlines, position)


def _renumbered(value: Any, position: dict[int, int]) -> Any:
    if isinstance(value, int):
        return position[value]
    if isinstance(value, dict):
        return {key: _renumbered(item, position) for key, item in value.items()}
    return [_renumbered(item, position) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> Any:
    """Numbers of a drawing to four digits: finer than any screen, a quarter of the bytes."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


def _name(block: Block) -> str:
    """What blocks of the same make share."""
    return str(getattr(block, "name", "") or getattr(block, "label", ""))


def _plotly(plotlyjs: PlotlyJs, prefix: str) -> tuple[str, str]:
    """The script element, and what the policy must allow for it."""
    if plotlyjs == "directory":
        return f'<script src="{prefix}{PLOTLY_FILE}"></script>', "'self' file:"
    code = get_plotlyjs()
    if plotlyjs == "inline":
        return _packed("plotly", code.encode()), _source_hash(code)
    digest = _source_hash(code).strip("'")
    url = f"{CDN}/plotly-{get_plotlyjs_version()}.min.js"
    tag = f'<script src="{url}" integrity="{digest}" crossorigin="anonymous"></script>'
    return tag, CDN


def _packed(name: str, content: bytes) -> str:
    """An element that holds this compressed; the script of the page unpacks it."""
    text = base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{text}</script>'


def _source_hash(code: str) -> str:
    digest = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot take the export: {error.strerror or error}; give another place."
        ) from error
