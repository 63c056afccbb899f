"""An arm's syncs counted without a GPU, on the emulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from gapless.arms import parse_arms
from gapless.bench_run import make_plan, variants_of
from gapless.sync_counters import LARGEST_TIME_S, EmulatedSyncProbe
from scenarios.build_options import BuildOptions
from scenarios.scenario_catalogue import get

if TYPE_CHECKING:
    from harness.workload import Workload

ARMS = ("baseline", "moe-routing=argsort")
UNUSED = cast("Workload", None)
"""The probe makes a workload of its own."""


@pytest.fixture
def probe() -> EmulatedSyncProbe:
    options = BuildOptions(num_layers=1, tokens=128, documents=2, num_batches=1, device="cpu")
    arms = parse_arms(ARMS[1:], variants_of())
    return EmulatedSyncProbe(make_plan(get("gpt-oss-20b"), arms, options))


def test_each_arm_is_counted_by_phase_with_the_sites_behind_it(probe: EmulatedSyncProbe) -> None:
    totals = {}
    for arm in ARMS:
        seen = probe(UNUSED, arm)
        counts = {count.phase: count.count for count in seen.syncs}
        assert counts["batch"] == counts["forward"] + counts["backward"] + counts["optimizer"]
        assert {count.source for count in seen.syncs} == {"modelled"}
        assert seen.audit is not None
        assert seen.audit.syncs_per_step == counts["batch"]
        assert seen.audit.steps == 1
        totals[arm] = counts["batch"]
    assert totals["moe-routing=argsort"] < totals["baseline"]


def test_after_too_much_time_the_other_arms_are_unknown(
    probe: EmulatedSyncProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_spent_s", LARGEST_TIME_S + 1)
    seen = probe(UNUSED, "baseline")
    assert not seen.syncs
    assert seen.audit is None
