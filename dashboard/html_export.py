"""Records as a page that needs no server: one file, or a folder for any web host.

The page loads nothing from anywhere. Its data and Plotly travel compressed inside it, and its own
content security policy allows the scripts it came with and no other.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from dashboard.blocks import Chart
from dashboard.pages import ab_page, claims_page, run_page, syncs_page
from dashboard.plain import without_folder
from dashboard.redaction import redacted_audits, redacted_run
from harness.errors import StoreError, UsageError
from harness.record.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.blocks import Block, Page
    from dashboard.snapshot import Snapshot
    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord, Sample

PlotlyJs = Literal["inline", "cdn", "directory"]

ASSETS = Path(__file__).resolve().parent / "assets"
PLOTLY_FILE = "plotly.min.js"
CDN = "https://cdn.plot.ly"
MAX_POINTS = 60_000
"""Samples drawn over all runs of one export: 200 runs stay far below 6 MB."""


@dataclass(frozen=True)
class Exported:
    """One run with what lies beside it."""

    record: RunRecord
    samples: tuple[Sample, ...]
    audits: tuple[ArmAudit, ...]


def collect(snapshot: Snapshot, records: Sequence[RunRecord], *, redact: bool) -> list[Exported]:
    """Read what the pages of these runs need, redacted where asked.

    Samples or audits that cannot be read are left out; the run says so in its notes.
    """
    store = Store(snapshot.root)
    out = []
    for record in records:
        notes = list(record.notes)
        samples: tuple[Sample, ...] = ()
        audits: tuple[ArmAudit, ...] = ()
        try:
            samples = store.samples(record.id)
            audits = store.audits(record.id) if record.audited_arms else ()
        except StoreError as error:
            notes.append(without_folder(error, snapshot.root))
        shown = msgspec.structs.replace(record, notes=tuple(notes))
        if redact:
            audits = redacted_audits(shown, audits)
            shown = redacted_run(shown)
        out.append(Exported(shown, samples, audits))
    return out


def export_file(runs: Sequence[Exported], target: Path, plotlyjs: PlotlyJs = "inline") -> None:
    """Write one page with all runs. Raises `UsageError` where it cannot be written."""
    front, pages = _front_pages(runs), _run_pages(runs, own_csv=False)
    files = {target.name: _document(front, pages, plotlyjs, prefix="")}
    if plotlyjs == "directory":
        files[PLOTLY_FILE] = get_plotlyjs()
    _write(target.parent, files)


def export_site(runs: Sequence[Exported], target: Path) -> None:
    """Write a folder of pages: an index, a page a run, and one script that all share."""
    run_pages = _run_pages(runs, own_csv=True)
    files = {
        "index.html": _document(
            _front_pages(runs), [], "directory", prefix="", links=_links(run_pages)
        ),
        PLOTLY_FILE: get_plotlyjs(),
    }
    for page in run_pages:
        files[f"run/{page.id}.html"] = _document([page], [], "directory", prefix="../")
    _write(target, files)


def _front_pages(runs: Sequence[Exported]) -> list[Page]:
    records = [run.record for run in runs]
    return [
        claims_page(records),
        ab_page(records),
        syncs_page(records, [run.audits for run in runs]),
    ]


def _run_pages(runs: Sequence[Exported], *, own_csv: bool) -> list[Page]:
    points = max(100, MAX_POINTS // max(len(runs), 1))
    return [
        run_page(run.record, run.samples, run.audits, max_points=points, own_csv=own_csv)
        for run in runs
    ]


def _links(pages: Sequence[Page]) -> list[dict[str, str]]:
    return [{"id": page.id, "title": page.title, "href": f"run/{page.id}.html"} for page in pages]


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
    title = pages[0].title if len(pages) == 1 else "gapless results"
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
        f"{_packed('data', msgspec.json.encode(data))}\n"
        f"{plotly_tag}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _laid_out(*groups: Sequence[Page]) -> tuple[list[Block], list[list[dict[str, Any]]]]:
    """All blocks, those alike next to each other, and pages that point to them.

    gzip sees 32 KiB back: the same chart of two runs must be neighbours for it to see that they
    are alike, which halves the file.
    """
    every = [block for pages in groups for page in pages for block in page.blocks]
    order = sorted(range(len(every)), key=lambda n: (type(every[n]).__name__, _name(every[n])))
    position = {number: place for place, number in enumerate(order)}
    taken = iter(range(len(every)))
    outlines = [
        [
            {
                "id": page.id,
                "title": page.title,
                "question": page.question,
                "blocks": [position[next(taken)] for _ in page.blocks],
            }
            for page in pages
        ]
        for pages in groups
    ]
    return [every[number] for number in order], outlines


def _name(block: Block) -> str:
    """What blocks of the same make share: a caption, a file name, or the axis of a chart."""
    if isinstance(block, Chart):
        return str(block.figure["layout"].get("xaxis", {}).get("title", ""))
    return getattr(block, "name", "") or getattr(block, "label", "")


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
            temporary = path.with_name(f"{path.name}.tmp")
            temporary.write_text(content, encoding="utf-8", newline="\n")
            temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot take the export: {error.strerror or error}; give another place."
        ) from error
