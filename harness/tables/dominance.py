"""One sentence on what decides a modelled comparison: the link, syncs, or the host's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.counts import counted
from harness.tables import figures

if TYPE_CHECKING:
    from harness.record.records import Claim, Overlap, RunRecord


def what_dominates(claim: Claim, record: RunRecord) -> str | None:
    """The sentence for the claim's arm against the record's baseline.

    `None` without figures, where the arm saves nothing, and where what it saves is none of these.
    """
    baseline = next((arm.name for arm in record.arms if arm.role == "baseline"), None)
    arm = next(
        (a.name for a in record.arms if a.variants.get(claim.optimization) == claim.variant), None
    )
    times = next((c for c in record.comparisons if c.arm == arm and c.phase == claim.phase), None)
    if baseline is None or arm is None or times is None:
        return None
    saved_ms = times.baseline_median_ms - times.arm_median_ms
    if saved_ms <= 0:
        return None
    waits = {s.arm: s for s in record.syncs if s.phase == claim.phase}
    overlap = {o.arm: o for o in record.overlap}
    before, after = overlap.get(baseline), overlap.get(arm)
    if before and after and _hidden_ms(after) - _hidden_ms(before) > saved_ms / 2:
        return (
            f"The link dominates: copies take {figures.milliseconds(before.copy_ms)} of the step, "
            f"of which {figures.percent(before.overlap, signed=False)} run beside compute before "
            f"and {figures.percent(after.overlap, signed=False)} after."
        )
    if baseline not in waits:
        return None
    exposed_ms = waits[baseline].exposed_ms or 0.0
    counts = counted(round(waits[baseline].count), "sync")
    if exposed_ms > saved_ms / 2:
        return (
            f"Syncs dominate: {figures.milliseconds(saved_ms)} is saved, and the exposed time of "
            f"{counts} is {figures.milliseconds(exposed_ms)}."
        )
    what = record.saved_work.get(claim.optimization)
    if what is None:
        return None
    return (
        f"The host's {what} dominate: {figures.milliseconds(saved_ms)} is saved, and the exposed "
        f"time of {counts} is {figures.milliseconds(exposed_ms)}."
    )


def _hidden_ms(overlap: Overlap) -> float:
    """Copy time that passed while a kernel ran."""
    return overlap.copy_ms * (overlap.overlap or 0.0)
