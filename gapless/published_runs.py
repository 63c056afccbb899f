"""Published claims to the runs they need. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gapless.arms import Choices, best_variant, parse_arms
from harness.errors import UsageError
from scenarios.published_setups import COMMON_GROUND, ONE_GPU, PURPOSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import Arm, Claim


@dataclass(frozen=True)
class ClaimRun:
    """One run, and the published rows that it speaks to."""

    scenario: str
    optimization: str
    claims: tuple[Claim, ...]

    @property
    def label(self) -> str:
        """Short name for progress and messages."""
        return f"{self.scenario}, {self.optimization}"

    def arms(self, choices: Choices) -> tuple[Arm, ...]:
        """The claimed baseline, each claimed variant, and the variant that goes beyond them."""
        variants = [claim.variant for claim in self.claims]
        best = best_variant(choices, self.optimization)
        variants += [best] if best is not None else []
        settings = {
            **COMMON_GROUND.get(self.optimization, {}),
            self.optimization: self.claims[0].baseline_variant,
        }
        texts = [f"{self.optimization}={variant}" for variant in dict.fromkeys(variants)]
        return parse_arms(texts, choices, settings=settings)

    def options(self, fit: str) -> dict[str, Any]:
        """Build options for `narrow`, `layers` or `full`, as `--fit` names them."""
        if fit == "layers":
            return {"fit": "full", **ONE_GPU.get((self.optimization, self.scenario), {})}
        return {"fit": fit, "purpose": PURPOSE.get(self.optimization, "balanced")}


def select_claims(claims: Sequence[Claim], only: Sequence[str]) -> tuple[Claim, ...]:
    """The claims with these ids, or all where none is given. Raises `UsageError`."""
    known = {claim.id: claim for claim in claims}
    unknown = [claim_id for claim_id in only if claim_id not in known]
    if unknown:
        raise UsageError(f"There is no claim {unknown[0]!r}; choose from {', '.join(known)}.")
    return tuple(claim for claim in claims if not only or claim.id in only)


def plan_runs(claims: Sequence[Claim]) -> tuple[ClaimRun, ...]:
    """As few runs as the claims allow: one for all phases of a fix on a scenario.

    The fixes take turns, so that each has been seen where time ends early.
    """
    grouped: dict[tuple[str, str, str], list[Claim]] = {}
    for claim in claims:
        key = (claim.optimization, claim.scenario, claim.baseline_variant)
        grouped.setdefault(key, []).append(claim)
    by_fix: dict[str, list[ClaimRun]] = {}
    for (optimization, scenario, _), group in grouped.items():
        by_fix.setdefault(optimization, []).append(ClaimRun(scenario, optimization, tuple(group)))
    turns = zip_longest(*by_fix.values())
    return tuple(run for turn in turns for run in turn if run is not None)
