"""What-if: what would each fix give on another GPU or model size?"""

from __future__ import annotations

import streamlit as st

from dashboard import shown
from dashboard.charts.whatif import whatif_chart, whatif_map
from dashboard.plain import markdown_text
from dashboard.rows import whatif
from dashboard.rows.listed import rows_csv

MAX_RUNS = 2_000


def page() -> None:
    """Sliders for GPU and size over modelled runs, and the whole map."""
    found = shown.snapshot()
    shown.page_head(
        "whatif", "What if", "What would each fix give on another GPU or model size?",
        [(k, st.query_params[k]) for k in ("on", "size", "setup", "arm") if k in st.query_params],
    )  # fmt: skip
    filters = shown.current_filters()
    positions = [n for n in found.positions(filters) if found.facets[n].source == "modelled"]
    rows = whatif.whatif_rows([found.records[n] for n in positions[:MAX_RUNS]])
    if not rows:
        shown.empty(
            "No modelled run here. One is made on any machine, without a GPU; `gapless list` has "
            "the names of optimizations and variants.",
            "gapless model qwen3-8b-packed-sft --gpu B200 --gpu H100 --arm OPTIMIZATION=VARIANT",
        )
        return
    st.caption("Modelled: hatched. Nothing on this page was measured.")
    gpus = whatif.gpus_by_speed(rows)
    sizes = list(dict.fromkeys(row.size for row in rows))
    largest = [row.size for row in rows if row.gpu == gpus[-1]][-1]
    left, right = st.columns(2)
    gpu = left.select_slider(
        "GPU, slowest to fastest", gpus, value=gpus[-1], key="on", bind="query-params",
        disabled=len(gpus) == 1,
    )  # fmt: skip
    size = right.select_slider(
        "Model size", sizes, value=largest, key="size", bind="query-params",
        disabled=len(sizes) == 1,
    )  # fmt: skip
    chosen = [row for row in rows if row.gpu == gpu and row.size == size]
    setups = list(dict.fromkeys(row.setup for row in chosen))
    if len(setups) > 1:
        setup = st.selectbox("Set-up", setups, key="setup", bind="query-params")
        chosen = [row for row in chosen if row.setup == setup]
    elif setups:
        st.caption(setups[0])
    if chosen:
        words = "; ".join(f"{row.arm} {row.phase}: {row.text}" for row in chosen)
        shown.show_chart(whatif_chart(chosen), words, "whatif")
    else:
        others = dict.fromkeys(row.size for row in rows if row.gpu == gpu)
        names = markdown_text("; ".join(others))
        st.info(f"This size was not modelled on {markdown_text(gpu)}; these were: {names}.")
    st.subheader("Every GPU and size", anchor=False)
    arms = list(dict.fromkeys(row.arm for row in rows))
    # At first the arm that was modelled most widely.
    widest = max(arms, key=lambda name: sum(row.arm == name for row in rows))
    arm = st.selectbox("Arm", arms, index=arms.index(widest), key="arm", bind="query-params")
    of_arm = [row for row in rows if row.arm == arm and row.phase == "batch"]
    if of_arm:
        words = "; ".join(f"{row.size}, {row.setup} on {row.gpu}: {row.text}" for row in of_arm)
        shown.show_chart(whatif_map(of_arm, gpus), words, "whatif-map")
    shown.show_table(whatif.COLUMNS.table(rows), rows_csv(whatif.WhatIfRow, rows), "what-if")


page()
