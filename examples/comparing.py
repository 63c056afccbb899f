"""What the three examples print: findings, syncs, parity, and time on the CPU before and after."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from harness.audit.emulated.emulated_audit import audit_callable

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Compared(NamedTuple):
    """Two versions of one step."""

    syncs_before: float
    syncs_after: float
    kinds_before: tuple[str, ...]
    kinds_after: tuple[str, ...]
    largest_difference: float
    """Of what the steps return, absolute."""


def compare(
    before: Callable[[str], Callable[[], torch.Tensor]],
    after: Callable[[str], Callable[[], torch.Tensor]],
) -> Compared:
    """Audit both on an emulated GPU, and compare what they return on the CPU.

    Each takes a device and gives a step; both make the same model from the same seed.
    """
    reports = [audit_callable(partial(build, "cuda"), build=True) for build in (before, after)]
    one, other = reports
    results = [build("cpu")() for build in (before, after)]
    return Compared(
        one.syncs_per_step or 0.0,
        other.syncs_per_step or 0.0,
        tuple(finding.kind for finding in one.findings),
        tuple(finding.kind for finding in other.findings),
        float((results[0] - results[1]).abs().max()),
    )


def show(
    before: Callable[[str], Callable[[], torch.Tensor]],
    after: Callable[[str], Callable[[], torch.Tensor]],
    rounds: int = 40,
) -> None:
    """Print the first finding, the comparison, and the time of both, measured in turns."""
    report = audit_callable(partial(before, "cuda"), build=True)
    finding = report.findings[0]
    print(f"{finding.kind} at line {finding.line}: {finding.code}")
    print(f"  {finding.why}")
    for line in finding.instead:
        print(f"    {line}")
    found = compare(before, after)
    print(f"Syncs per step, counted on an emulated GPU: {found.syncs_before:g} before, "
          f"{found.syncs_after:g} after")  # fmt: skip
    print(f"Largest difference of the results: {found.largest_difference:.1e}")
    steps = [before("cpu"), after("cpu")]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
    speedups = [b / a - 1 for b, a in zip(*times, strict=True)]
    low, high = (statistics.quantiles(speedups, n=20)[i] for i in (0, -1))
    print(f"Measured on this CPU, {rounds} rounds in turns: {statistics.median(speedups):+.1%} "
          f"(90 % of rounds from {low:+.1%} to {high:+.1%})")  # fmt: skip
    print("A CPU has no syncs: what a GPU gains by their removal is not measured here.")
