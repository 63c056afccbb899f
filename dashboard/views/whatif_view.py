"""The controls of what-if: a GPU, a model size, a set-up, and an arm for the map of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.contents import whatif_page
from dashboard.contents.blocks import Heading, Text
from dashboard.views.block_renderer import render
from dashboard.views.controls import choose_one, choose_step
from dashboard.views.page_frame import current_filters, page_frame

if TYPE_CHECKING:
    from dashboard.snapshot import Snapshot


def page(found: Snapshot) -> None:
    """Sliders for GPU and size over modelled runs, and the whole map."""
    modelled = whatif_page.modelled_runs(found, current_filters())
    if not modelled.rows:
        render(whatif_page.nothing_modelled())
        return
    render([Text(whatif_page.ONLY_MODELLED, "quiet")])
    fastest = modelled.gpus[-1]
    left, right = st.columns(2)
    with left:
        gpu = choose_step("GPU, slowest to fastest", modelled.gpus, name="on", default=fastest)
    with right:
        largest = modelled.largest_on(fastest)
        size = choose_step("Model size", modelled.sizes, name="size", default=largest)
    setups = modelled.setups(gpu, size)
    setup = choose_one("Set-up", setups, name="setup") if setups else None
    render(whatif_page.one_place(modelled, gpu, size, setup))
    render([Heading("Every GPU and size")])
    arm = choose_one("Arm", modelled.arms, name="arm")
    render(whatif_page.every_place(modelled, arm))


OWN = ("on", "size", "setup", "arm")
with page_frame(whatif_page.HEAD, *OWN) as shown:
    page(shown)
