"""Which of several runs speaks: one rule for pages, exports, the report and the command line.

Runs speak on one topic where they answer the same question: for a published claim on one GPU, or
for one arm of one model with the same layers, tokens and variants on one GPU. Of these a complete
run with enough blocks goes before any other, real widths before narrowed ones, more layers and then
more tokens before fewer, and among equal set-ups the narrowest interval; of equals the newest. The
others are counted and linked, never mixed in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import msgspec

from harness.stats import enough_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.record.records import Arm, Claim, Comparison, Phase, RunRecord

Run = TypeVar("Run")


class Standing(NamedTuple):
    """How a figure ranks among those of its topic; the greatest speaks."""

    is_usable: bool
    """The run is complete and has enough blocks."""
    is_full: bool
    num_layers: int
    num_tokens: int
    narrowness: float
    """Width of the interval, negative; minus infinity where there is no figure."""


Topic: TypeAlias = tuple[str, ...]


class Voice(NamedTuple):
    """One figure of a run: what it answers, and how it ranks there."""

    topic: Topic
    standing: Standing


def standing(record: RunRecord, found: Comparison | None) -> Standing:
    """The rank of this figure of a run; a run without the figure ranks last in its set-up."""
    scenario = record.scenario
    layers = scenario.config.get("num_layers")
    return Standing(
        is_usable=found is not None and record.status == "complete" and has_enough_blocks(found),
        is_full=scenario.fit == "full",
        num_layers=layers if isinstance(layers, int) else 0,
        num_tokens=scenario.input.num_tokens if scenario.input else 0,
        narrowness=-math.inf if found is None else found.low - found.high,
    )


def has_enough_blocks(found: Comparison) -> bool:
    """Whether its interval rests on enough blocks; a modelled clock repeats itself exactly."""
    return found.source == "modelled" or enough_blocks(found.num_blocks)


def by_topic(runs: Iterable[tuple[Run, Iterable[Voice]]]) -> dict[Topic, list[Run]]:
    """Topic -> the runs that answer it, the one that speaks first. `runs` are newest first."""
    found: dict[Topic, list[tuple[Standing, Run]]] = {}
    for run, voices in runs:
        for voice in voices:
            found.setdefault(voice.topic, []).append((voice.standing, run))
    return {
        topic: [run for _, run in sorted(ranked, key=lambda pair: pair[0], reverse=True)]
        for topic, ranked in found.items()
    }


def arm_topics(record: RunRecord) -> dict[tuple[str, Phase], Topic]:
    """(arm, phase) -> what its figure answers: the set-up, the variants of arm and baseline, and
    the phase. The baseline a second time answers nothing."""
    setup, names = setup_key(record), _variants(record)
    return {
        (found.arm, found.phase): (setup, names[found.arm], found.phase)
        for found in record.comparisons
        if found.arm in names
    }


def arm_voices(record: RunRecord) -> tuple[Voice, ...]:
    """What a run says on its arms: one voice for each arm and phase that was compared."""
    topics = arm_topics(record)
    return tuple(
        Voice(topics[found.arm, found.phase], standing(record, found))
        for found in record.comparisons
        if (found.arm, found.phase) in topics
    )


def setup_key(record: RunRecord) -> str:
    """Scenario, model, widths, layers, tokens, GPU and source of a run in one text."""
    scenario = record.scenario
    tokens = scenario.input.num_tokens if scenario.input else None
    layers = scenario.config.get("num_layers")
    parts = (scenario.name, scenario.model, scenario.fit, layers, tokens, gpu_name(record))
    return "\n".join(map(str, (*parts, record.source)))


def claim_voices(record: RunRecord) -> tuple[Voice, ...]:
    """What a run says on published claims: each on its own GPU.

    A modelled run speaks for its own set-up, since a claim whose conditions are not published is
    modelled in several and answered by their range.
    """
    place: Topic = (record.source, gpu_name(record))
    if record.source == "modelled":
        place = (*place, str(hash(msgspec.json.encode(record.scenario))))
    return tuple(
        Voice((claim.id, *place), standing(record, claimed_comparison(claim, record)))
        for claim in record.claims
    )


def speaking_on(claim: Claim, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that were made for this claim, the one that speaks first."""
    made = [record for record in records if any(other.id == claim.id for other in record.claims)]
    return sorted(
        made, key=lambda record: standing(record, claimed_comparison(claim, record)), reverse=True
    )


def claimed_comparison(claim: Claim, record: RunRecord) -> Comparison | None:
    """What the run compared that the claim is about; `None` where it did not get so far."""
    arm = claimed_arm(claim, record)
    return next((c for c in record.comparisons if (c.arm, c.phase) == (arm, claim.phase)), None)


def claimed_arm(claim: Claim, record: RunRecord) -> str | None:
    """The arm that has the claimed variant and is otherwise the baseline."""
    baseline = _baseline(record)
    wanted = {**(baseline.variants if baseline else {}), claim.optimization: claim.variant}
    for arm in record.arms:
        if arm.role == "arm" and arm.variants == wanted:
            return arm.name
    return None


def gpu_name(record: RunRecord) -> str:
    """`NVIDIA H200` or `cpu` where it was measured, `B200` where it was modelled."""
    machine = record.machine
    if record.source == "modelled":
        return machine.device.removeprefix("emulated-").upper()
    return machine.gpus[0].name if machine.gpus else machine.device


def size_text(record: RunRecord) -> str:
    """`full`, `narrow`, or `2 of 40 layers` and `narrow, 2 of 40 layers` where layers were left
    out: a part of a model never goes by the name of the whole."""
    scenario = record.scenario
    real, as_run = scenario.narrowed.get("num_layers", (0, 0))
    if real == as_run:
        return scenario.fit
    layers = f"{as_run:,} of {real:,} layers"
    return layers if scenario.fit == "full" else f"{scenario.fit}, {layers}"


def _variants(record: RunRecord) -> dict[str, str]:
    """Arm -> its variants beside those of the baseline; the baseline and its twin have none."""
    baseline = _baseline(record)
    if baseline is None:
        return {}
    ground = _listed(baseline)
    return {
        arm.name: f"{_listed(arm)} against {ground}" for arm in record.arms if arm.role == "arm"
    }


def _listed(arm: Arm) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(arm.variants.items()))


def _baseline(record: RunRecord) -> Arm | None:
    return next((arm for arm in record.arms if arm.role == "baseline"), None)
