"""The controls of A/B: a phase, what moved, one run and a way to look at it, a base and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import streamlit as st

from dashboard.contents import arms_page
from dashboard.contents.arms_page import ArmChoices
from dashboard.contents.blocks import Heading, Text
from dashboard.views.block_renderer import render
from dashboard.views.controls import choose_run, choose_runs, choose_segment
from dashboard.views.page_frame import current_filters, page_frame
from harness.record.records import PHASES

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot
    from harness.record.records import Phase

MAX_LISTED = 500
MAX_AGAINST = 20


def page(found: Snapshot) -> None:
    """Several runs at once, one run closely, runs against a base, and all as a table."""
    filters = current_filters()
    compared = [facets for facets in found.kept(filters) if facets.arm_voices]
    if not compared:
        render(arms_page.arms_page(found, ArmChoices(filters)))
        return
    timed = {voice.topic[-1] for facets in compared for voice in facets.arm_voices}
    phases = [phase for phase in PHASES if phase in timed]
    left, right = st.columns([3, 2])
    with left:
        default = "batch" if "batch" in phases else phases[0]
        phase = choose_segment("Phase", phases, name="phase", default=default)
    only_moved = right.toggle("Only what moved", value=True, key="moved", bind="query-params")
    choices = ArmChoices(filters, cast("Phase", phase), only_moved, arms_page.MAX_RUNS)
    render(arms_page.overview(found, choices))

    listed = compared[:MAX_LISTED]
    render([Heading("One run closely")])
    record = choose_run(found, listed, "Run", name="of", page="ab")
    way = choose_segment("Show", arms_page.WAYS, name="show", default=arms_page.WAYS[0])
    if record is not None:
        render(arms_page.closely(found, record, cast("arms_page.Way", way)))

    render([Heading("Runs against one base")])
    base = choose_run(found, listed, "Base", name="base", page="ab")
    runs = choose_runs(found, listed, "Against it", name="against", page="ab", limit=MAX_AGAINST)
    if base is None or not runs:
        render([Text("Choose runs to see which of their arms moved against the base.", "quiet")])
    else:
        render(arms_page.against_base(base, runs, only_moved=only_moved))

    render([Heading("All figures"), *arms_page.all_figures(found, choices)])


OWN = ("phase", "moved", "of", "show", "base", "against")
with page_frame(arms_page.HEAD, *OWN) as shown:
    page(shown)
