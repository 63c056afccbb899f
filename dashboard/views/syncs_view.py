"""The controls of syncs: a run, and the arm that its baseline is shown beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.contents import syncs_page
from dashboard.facets import facets_of
from dashboard.views.block_renderer import render
from dashboard.views.controls import choose_one, choose_run
from dashboard.views.page_frame import current_filters, page_frame

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot


def page(found: Snapshot) -> None:
    """Counts by arm, then the sites of one run before and after."""
    records = syncs_page.counted_runs(found, current_filters())
    if not records:
        render(syncs_page.no_counts())
        return
    record = choose_run(found, list(map(facets_of, records)), "Run", name="of", page="syncs")
    if record is None:
        return
    arms = syncs_page.compared_arms(found, record)
    beside = choose_one("Compare with", arms, name="after") if arms else None
    render(syncs_page.syncs_page(found, record, beside))


with page_frame(syncs_page.HEAD, "of", "after") as shown:
    page(shown)
