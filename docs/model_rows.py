"""Figures of modelled records beside their claims, as docs/model-validation.md writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.modelled import phase_ms
from gapless.published_models import command_of
from gapless.published_runs import plan_runs
from harness.tables import figures
from scenarios.published import CLAIMS
from scenarios.published_setups import SETUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.records import Claim, RunRecord


def of_claim(records: Sequence[RunRecord], claim: Claim) -> tuple[RunRecord, ...]:
    """The newest record of each set-up that speaks to the claim, in the order of the set-ups."""
    run = next(run for run in plan_runs(CLAIMS) if claim in run.claims)
    found = []
    for number in range(len(SETUPS[run.optimization, run.scenario])):
        command = command_of(run, number)
        found += [record for record in records if record.command == command][:1]
    return tuple(found)


def modelled_rows(
    records: Sequence[RunRecord], optimization: str
) -> Iterable[tuple[Claim, RunRecord]]:
    for claim in CLAIMS:
        if claim.optimization == optimization:
            yield from ((claim, record) for record in of_claim(records, claim))


def arm_named(record: RunRecord, variant: str, claim: Claim) -> str:
    return next(a.name for a in record.arms if a.variants.get(claim.optimization) == variant)


def gain_of(record: RunRecord, claim: Claim) -> float | None:
    arm = arm_named(record, claim.variant, claim)
    return next(
        (c.speedup for c in record.comparisons if c.arm == arm and c.phase == claim.phase), None
    )


def batch_times_ms(record: RunRecord, claim: Claim) -> tuple[float, float]:
    """Steps of the claim's baseline and variant."""
    before, after = (
        phase_ms(record, arm_named(record, variant, claim), "batch")
        for variant in (claim.baseline_variant, claim.variant)
    )
    if before is None or after is None:
        raise SystemExit(f"{record.id} has no step time; model it anew with --run.")
    return before, after


def span_text(times_ms: Sequence[float]) -> str:
    if not times_ms:
        return figures.UNKNOWN
    low, high = min(times_ms) / 1e3, max(times_ms) / 1e3
    return f"{low:.2f} to {high:.2f} s"


def gpu_of(record: RunRecord) -> str:
    return record.machine.device.removeprefix("emulated-").upper()


def tokens_of(record: RunRecord) -> int:
    return record.scenario.input.num_tokens if record.scenario.input else 0


def documents_text(record: RunRecord) -> str:
    packed = record.scenario.input
    return figures.UNKNOWN if packed is None else f"{packed.num_documents_mean:.0f}"


def extra_bytes_of(record: RunRecord, claim: Claim) -> int | None:
    peaks = {m.arm: m.peak_bytes for m in record.memory if m.phase == "batch"}
    after = peaks.get(arm_named(record, claim.variant, claim))
    before = peaks.get(arm_named(record, claim.baseline_variant, claim))
    return None if after is None or before is None else after - before


def points_text(modelled: float | None, published: float) -> str:
    return figures.UNKNOWN if modelled is None else f"{100 * (modelled - published):+.1f} points"


def relative_text(modelled: float | None, published: float | None) -> str:
    if modelled is None or not published:
        return figures.UNKNOWN
    return figures.percent(modelled / published - 1)


def rate_text(steps_per_s: float | None) -> str:
    return figures.UNKNOWN if steps_per_s is None else f"{steps_per_s:.4f}"
