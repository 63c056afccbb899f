"""What if: what would each fix give on another GPU or model size?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dashboard.charts.modelled_charts import whatif_chart, whatif_map
from dashboard.contents.blocks import Head, Heading, Text, chart, grid, nothing
from dashboard.rows import modelled_rows
from dashboard.rows.listed import rows_csv

if TYPE_CHECKING:
    from dashboard.contents.blocks import Block
    from dashboard.filters import Filters
    from dashboard.rows.modelled_rows import WhatIfRow
    from dashboard.snapshot import Snapshot

HEAD = Head(
    "whatif", "What-if", "What if", "What would each fix give on another GPU or model size?"
)
ONLY_MODELLED = "Modelled: hatched. Nothing on this page was measured."
MAX_RUNS = 2_000


@dataclass(frozen=True)
class Modelled:
    """Everything that was modelled, and what of it can be chosen."""

    rows: tuple[WhatIfRow, ...]

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """From the slowest to the fastest."""
        return modelled_rows.gpus_by_speed(self.rows)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """From the smallest to the largest model."""
        return tuple(dict.fromkeys(row.size for row in self.rows))

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """The one that was modelled most widely first."""
        names = dict.fromkeys(row.arm for row in self.rows)
        return tuple(sorted(names, key=lambda name: -sum(row.arm == name for row in self.rows)))

    def largest_on(self, gpu: str) -> str:
        """The largest model that was modelled on this GPU."""
        return [row.size for row in self.rows if row.gpu == gpu][-1]

    def setups(self, gpu: str, size: str) -> tuple[str, ...]:
        """Set-ups of this model that were modelled on this GPU."""
        return tuple(dict.fromkeys(row.setup for row in self._at(gpu, size)))

    def chosen(self, gpu: str, size: str, setup: str | None) -> list[WhatIfRow]:
        """Rows of one GPU, model and set-up."""
        return [row for row in self._at(gpu, size) if setup is None or row.setup == setup]

    def _at(self, gpu: str, size: str) -> list[WhatIfRow]:
        return [row for row in self.rows if (row.gpu, row.size) == (gpu, size)]


def modelled_runs(found: Snapshot, filters: Filters) -> Modelled:
    """The rows of the newest modelled runs."""
    positions = [n for n in found.positions(filters) if found.facets[n].source == "modelled"]
    return Modelled(modelled_rows.whatif_rows([found.records[n] for n in positions[:MAX_RUNS]]))


def nothing_modelled() -> tuple[Block, ...]:
    """What to do where no run was modelled."""
    return nothing(
        "No modelled run here. One is made on any machine, without a GPU; `gapless list` has "
        "the names of optimizations and variants.",
        "gapless model qwen3-8b-packed-sft --gpu B200 --gpu H100 --arm OPTIMIZATION=VARIANT",
    )


def one_place(modelled: Modelled, gpu: str, size: str, setup: str | None) -> tuple[Block, ...]:
    """Every arm on one GPU for one model and set-up."""
    chosen = modelled.chosen(gpu, size, setup)
    if chosen:
        words = "; ".join(f"{row.arm} {row.phase}: {row.text}" for row in chosen)
        return (chart("whatif", whatif_chart(chosen), words),)
    others = "; ".join(dict.fromkeys(row.size for row in modelled.rows if row.gpu == gpu))
    return (Text(f"This size was not modelled on {gpu}; these were: {others}.", "info"),)


def every_place(modelled: Modelled, arm: str) -> tuple[Block, ...]:
    """One arm over all GPUs and sizes, and every row as a table."""
    of_arm = [row for row in modelled.rows if row.arm == arm and row.phase == "batch"]
    blocks: list[Block] = []
    if of_arm:
        words = "; ".join(f"{row.size}, {row.setup} on {row.gpu}: {row.text}" for row in of_arm)
        blocks.append(chart("whatif-map", whatif_map(of_arm, modelled.gpus), words))
    csv = rows_csv(modelled_rows.WhatIfRow, modelled.rows)
    return (*blocks, grid("what-if", modelled_rows.COLUMNS.table(modelled.rows), csv=csv))


def whatif_page(modelled: Modelled) -> tuple[Block, ...]:
    """The page as it opens: the fastest GPU, its largest model, and the arm modelled most."""
    gpu = modelled.gpus[-1]
    size = modelled.largest_on(gpu)
    setup, arm = modelled.setups(gpu, size)[0], modelled.arms[0]
    return (
        Text(ONLY_MODELLED, "quiet"),
        Heading(f"{size} on {gpu}"),
        Text(setup, "quiet"),
        *one_place(modelled, gpu, size, setup),
        Heading(f"Every GPU and size: {arm}"),
        *every_place(modelled, arm),
    )
