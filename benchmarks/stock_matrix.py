"""Every stock model family with every attention and experts implementation, at full depth.

Widths are small and each expert is hit, so that a count depends on the library's code alone. For
each way to train that transformers accepts, one packed batch with activation checkpointing must
give the same count on real values and on shapes, and grow by a whole number with each layer.
About ten minutes on an idle core, so no test.

    python -m benchmarks.stock_matrix [--family Qwen3Moe] [--depth 8]

Exits with 1 where a way fails, and prints what transformers refuses and why.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import time
import warnings
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from docs.stock_models import DENSE, SPARSE, Setting, audit_setting
from harness.audit.growth import Growth, Sizes, fit_growth
from harness.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTHS = {"Llama": 16, "Qwen3": 28, "Mixtral": 32, "Qwen3Moe": 48, "GptOss": 24}
"""Layers of the published models: Llama-3.2-1B, Qwen3-0.6B, Mixtral-8x7B, Qwen3-30B-A3B and
gpt-oss-20b."""
NUM_EXPERTS = 2
"""As many as each token picks, so that all are hit however the router decides."""


class Outcome(NamedTuple):
    """What became of one way to train."""

    syncs: float | None = None
    growth: Growth | None = None
    refused: str | None = None
    failed: str | None = None


def ways(families: list[str]) -> Iterator[Setting]:
    """The cross product, with all that the installed transformers lists."""
    attentions = ("eager", *sorted(name for name in ALL_ATTENTION_FUNCTIONS if "|" not in name))
    all_experts = ("eager", *sorted(ALL_EXPERTS_FUNCTIONS))
    for family in families:
        experts = all_experts if family in SPARSE else (None,)
        for attention, implementation in itertools.product(attentions, experts):
            yield Setting(family, attention, implementation, "packed")


def outcome(setting: Setting, depth: int) -> Outcome:
    """Audit one way on values and shapes at full depth, and on shapes with two layers."""
    experts = None if setting.experts is None else NUM_EXPERTS
    full, small = Sizes(depth, experts), Sizes(2, experts)
    try:
        on_values = audit_setting(setting, full, "values").syncs_per_step
        on_shapes = audit_setting(setting, full, "shapes").syncs_per_step
        shallow = audit_setting(setting, small, "shapes").syncs_per_step
    except WorkloadError as error:
        # transformers says so itself, before anything runs, where it lacks a way or a package.
        if isinstance(error.__cause__, ImportError | ValueError):
            return Outcome(refused=str(error.__cause__).split(". ")[0].strip())
        return Outcome(failed=str(error))
    if on_values is None or on_shapes is None or shallow is None:
        return Outcome(failed="a count is missing")
    growth = fit_growth({small: shallow, full: on_shapes})
    failed = None
    if on_values != on_shapes:
        failed = f"{on_values:g} on values, {on_shapes:g} on shapes"
    elif growth.per_layer.denominator != 1 or growth.constant.denominator != 1:
        failed = f"grows as {growth}"
    return Outcome(on_values, growth, failed=failed)


def line(setting: Setting, found: Outcome, elapsed_s: float) -> str:
    """One row: what was tried, and its count or the reason for none."""
    tried = f"{setting.family:9} {setting.attention:18} {setting.experts or '-':11}"
    if found.refused is not None:
        return f"{tried} refused: {found.refused}"
    if found.failed is not None:
        return f"{tried} FAILED: {found.failed}"
    return f"{tried} {found.syncs:6g} syncs = {found.growth!s:24} {elapsed_s:5.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=(*DENSE, *SPARSE))
    parser.add_argument("--depth", type=int, help="layers, where the published number is too many")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    outcomes, start = [], time.perf_counter()
    for setting in ways(options.family or [*DENSE, *SPARSE]):
        begun = time.perf_counter()
        found = outcome(setting, options.depth or DEPTHS[setting.family])
        outcomes.append(found)
        print(line(setting, found, time.perf_counter() - begun), flush=True)
    num_failed = sum(found.failed is not None for found in outcomes)
    num_refused = sum(found.refused is not None for found in outcomes)
    print(
        f"{len(outcomes)} ways: {len(outcomes) - num_refused - num_failed} hold, {num_refused} "
        f"refused by transformers, {num_failed} failed; {time.perf_counter() - start:.0f} s"
    )
    return 1 if num_failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
