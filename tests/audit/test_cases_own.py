"""Steps with known answers, on the emulated device, with values and on shapes only."""

from __future__ import annotations

from typing import Any

import pytest

from harness.audit.emulated.emulated_audit import audit_callable
from tests.emulator.own_cases import OWN_CASES, OwnCase


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.name)
def test_counts_and_names_the_waits(case: OwnCase, mode: Any) -> None:
    report = audit_callable(lambda: case.build("cuda"), build=True, mode=mode)

    assert report.syncs_per_step == case.syncs
    assert {site.kind for site in report.sites} == ({case.kind} if case.kind else set())
    phases = {site.phase for site in report.sites}
    if case.phase == "both":
        assert phases == {"forward", "recompute"}
    elif case.syncs:
        assert phases == {case.phase}
