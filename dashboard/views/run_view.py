"""The controls of a run: which run, and the phase of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dashboard.contents import run_page
from dashboard.contents.blocks import nothing
from dashboard.views.block_renderer import render
from dashboard.views.controls import choose_run, choose_segment
from dashboard.views.page_frame import current_filters, page_frame

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot
    from harness.record.records import Phase


def page(found: Snapshot) -> None:
    """The run that the address names, or the newest."""
    listed = found.kept(current_filters())[: run_page.MAX_RUNS]
    record = choose_run(found, listed, "Run", name="id", page="run")
    if record is None:
        render(nothing("The store has no run that the filters keep.", "gapless reproduce"))
        return
    phases = run_page.phases_of(found, record)
    phase = None
    if phases:
        phase = choose_segment("Phase of the samples", phases, name="phase", default=phases[0])
    choices = run_page.RunChoices(cast("Phase | None", phase), with_files=True)
    render(run_page.run_page(found, record, choices))


with page_frame(run_page.HEAD, "id", "phase") as shown:
    page(shown)
