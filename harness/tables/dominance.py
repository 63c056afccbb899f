"""One sentence on what decides a modelled comparison: mask rebuilds, link, waits or launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.tables import figures

if TYPE_CHECKING:
    from harness.record.records import Claim, RunRecord


def what_dominates(claim: Claim, record: RunRecord) -> str | None:
    """The sentence for the claim's arm against the record's baseline; `None` without figures."""
    baseline = next((arm.name for arm in record.arms if arm.role == "baseline"), None)
    arm = next(
        (a.name for a in record.arms if a.variants.get(claim.optimization) == claim.variant), None
    )
    times = next((c for c in record.comparisons if c.arm == arm and c.phase == claim.phase), None)
    if baseline is None or arm is None or times is None:
        return None
    saved_ms = times.baseline_median_ms - times.arm_median_ms
    waits = {s.arm: s for s in record.syncs if s.phase == claim.phase}
    overlap = {o.arm: o for o in record.overlap}
    if claim.optimization == "checkpoint-reload" and baseline in overlap and arm in overlap:
        before, after = overlap[baseline], overlap[arm]
        return (
            f"The link dominates: copies take {figures.milliseconds(before.copy_ms)} of the step, "
            f"of which {figures.percent(before.overlap, signed=False)} run beside compute before "
            f"and {figures.percent(after.overlap, signed=False)} after."
        )
    if baseline not in waits:
        return None
    exposed_ms = waits[baseline].exposed_ms or 0.0
    counts = f"{waits[baseline].count:,.0f} reads of the device"
    if exposed_ms > saved_ms / 2:
        return (
            f"The waits dominate: {counts} leave the device idle for "
            f"{figures.milliseconds(exposed_ms)} of the {figures.milliseconds(saved_ms)} saved."
        )
    what = "mask rebuilds" if claim.optimization == "packed-metadata" else "expert launches"
    return (
        f"The host's {what} dominate: {figures.milliseconds(saved_ms)} are saved, and the {counts} "
        f"alone expose {figures.milliseconds(exposed_ms)}."
    )
