"""Sections of docs/model-validation.md that check the clock: by hand, by traces, on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.tables import figures
from harness.tables.grid import Table, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def account(parts: Sequence[dict[str, Any]]) -> Iterable[str]:
    if not parts:
        return
    yield "## What a step is made of, by hand"
    yield ""
    rows = tuple(
        (part["row"], part["what"], part["clock"], part["by_hand"], part["how"]) for part in parts
    )
    yield to_markdown(Table(("Step", "Part", "Clock", "By hand", "How"), rows))
    yield ""


def kernels(traces: Sequence[dict[str, Any]]) -> Iterable[str]:
    rows = [
        (
            trace["gpu"], trace["role"], error["kind"], f"{error['num_ops']:,}",
            figures.milliseconds(error["recorded_ms"]), figures.milliseconds(error["modelled_ms"]),
            f"{error['median_factor']:.2f}", f"{error['within_two']:.0%}",
        )
        for trace in traces
        for error in trace["errors"]
    ]  # fmt: skip
    columns = (
        "GPU", "Trace was", "Class", "Ops", "Recorded", "Modelled", "Median factor", "Within 2",
    )  # fmt: skip
    yield "## Kernel times of recorded traces"
    yield ""
    yield to_markdown(Table(columns, tuple(rows)))
    yield ""
    yield (
        "Real Kineto traces with shapes from AMD-AGI/TraceLens (MIT); a factor is modelled over "
        "recorded time or its inverse, whichever is above 1. Wanted over all ops: median at most "
        "1.5 and 80 % within 2. None of them holds a backward pass, so attention backward, scatter "
        "and optimizer shares are assumptions. Misses: `gather` on the H100, where 10 of 15 ops "
        "take at most 16 indices, for which torch has a kernel that walks them one after another "
        "(5.4 us, of which the clock has the 1.4 of a launch); and `sort` on the B300, three top-k "
        "of two kernels whose passes over the bits of a key wait for each other (7 us each, not "
        "2.6). Both are bound by latency, which the clock has only as its shortest kernel. A step "
        "of gpt-oss-20b has 48 such top-k: 0.4 ms of 600."
    )
    yield ""


def cpu(checks: Sequence[dict[str, Any]]) -> Iterable[str]:
    rows = [
        (
            check["workload"], check["phase"], figures.milliseconds(check["modelled_ms"]),
            figures.milliseconds(check["measured_ms"]),
            figures.percent(check["modelled_ms"] / check["measured_ms"] - 1),
        )
        for check in checks
    ]  # fmt: skip
    yield "## Calibrated on a CPU, against that CPU"
    yield ""
    yield to_markdown(Table(("Workload", "Phase", "Modelled", "Measured", "off by"), tuple(rows)))
    yield ""
    yield (
        "`gapless calibrate --device cpu --check` repeats this anywhere, on one thread and in "
        "processor time, so that other work on the machine does not count. Wanted: within 25 %. "
        "The model is "
        "somewhat short of the measured time: ops are calibrated in a loop of their own, where "
        "code and data are warmer in the caches than inside a model."
    )
    yield ""


def peers() -> Iterable[str]:
    yield "## Peers"
    yield ""
    yield (
        "`torch.distributed._tools.RuntimeEstimator` also prices ops by a roofline. In torch 2.13 "
        "it asserts a CUDA device (`Roofline estimation needs to access CUDA capabilities`), so it "
        "does not run where this page is written, and there is no figure to put beside ours. By "
        "its source it adds up kernel times: it has no host, no streams, no copies and no syncs, "
        "so a reload, a poll or a rebuild that waits for the host costs nothing in it."
    )
    yield ""


def simplifications() -> Iterable[str]:
    yield "## Stated simplifications"
    yield ""
    for sentence in (
        (
            "Kernels of different streams run side by side at full speed; they do not share the "
            "multiprocessors."
        ),
        "A copy does not slow the kernels beside it, though it takes some of their bandwidth.",
        "Clocks do not change with power or temperature.",
        "Kernels are those of eager torch; fused or compiled ones are not modelled.",
        "Experts and other choices that depend on data are drawn evenly.",
    ):
        yield f"- {sentence}"
    yield ""
