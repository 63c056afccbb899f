"""Modelled runs of the published rows at their real size: how they are made, and where they lie."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.modelled import model_scenario
from harness.store import Store
from scenarios.catalogue import get

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.arms import Choices
    from gapless.reproduce import ClaimRun
    from harness.bench.events import Progress
    from harness.records import RunRecord

GPU = "B200"
"""What the articles call Blackwell, where they name a GPU at all."""
SHIPPED = Path(__file__).resolve().parent.parent / "results"

_ADAPTER: Mapping[str, Any] = {"fit": "full", "adapter": "lora"}
_RELOAD: Mapping[str, Any] = {**_ADAPTER, "attention": "varlen"}
# The article models the rebuilds of a forward only, so nothing is computed again in its backward.
# 256 documents of 8 tokens are one choice for the mask build and both rows that rest on it: see
# docs/model-validation.md.
_MICROBENCH: Mapping[str, Any] = {
    **_ADAPTER, "tokens": 2048, "documents": 256, "checkpointing": False
}  # fmt: skip

SETUPS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("checkpoint-reload", "qwen3-8b-packed-sft"): {**_RELOAD, "documents": 24},
    ("checkpoint-reload", "qwen3-14b-packed-sft"): {**_RELOAD, "documents": 24},
    ("checkpoint-reload", "qwen3-32b-packed-sft"): {**_RELOAD, "documents": 12},
    ("checkpoint-reload", "llama3.2-1b-packed-sft"): {**_RELOAD, "tokens": 4096, "documents": 2},
    ("packed-metadata", "llama3.2-1b-packed-sft"): _MICROBENCH,
    ("packed-metadata", "qwen3-0.6b-packed-sft"): _MICROBENCH,
    ("packed-metadata", "qwen3-14b-packed-sft"): {
        **_ADAPTER, "tokens": 4096, "documents": 32, "checkpointing": False
    },
    ("moe-routing", "gpt-oss-20b"): {**_ADAPTER, "tokens": 2048},
}  # fmt: skip
"""(optimization, scenario) -> build options. Lengths of 2,048 tokens where nothing is known."""


def model_claims(
    run: ClaimRun,
    choices: Choices,
    *,
    store: str | None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """The modelled record of the claims of one run, at the real size."""
    return model_scenario(
        get(run.scenario),
        run.arms(choices),
        run.claims[0].gpu or GPU,
        SETUPS[run.optimization, run.scenario],
        store=store,
        claims=run.claims,
        command=f"python docs/model_validation.py --run {run.optimization}:{run.scenario}",
        on_progress=on_progress,
    )


@cache
def published_models(root: Path = SHIPPED) -> tuple[RunRecord, ...]:
    """The modelled records that ship with the project, newest first; none where they are absent."""
    if not root.is_dir():
        return ()
    return tuple(
        record
        for record in Store(str(root)).listing().records
        if record.source == "modelled"
        and record.status == "complete"
        and record.scenario.fit == "full"
    )
