"""The sync rules against a real CUDA device, by three independent witnesses.

GPU-trace callbacks, the warnings of the sync debug mode, and the profiler each count the waits of
the same step. The test prints a table of all four figures; where the callbacks disagree with a
rule, the GPU is right and the rule has to change, with the printed line as evidence.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.audit.emulated.emulated_audit import audit_callable
from harness.audit.live.live_syncs import SyncRecorder
from tests.emulator.own_cases import OWN_CASES, OwnCase

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.gpu

_WAITING_CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_UNSEEN_BY_DEBUG_MODE = ("synchronize",)


def witnessed(step: Callable[[], Any]) -> tuple[int, int, int]:
    """Waits of one step in steady state: by callbacks, by debug mode, by the profiler."""
    step()  # first use allocates, and builds optimizer state
    gc.collect()
    torch.cuda.synchronize()
    with SyncRecorder() as recorder:
        step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        torch.profiler.profile(activities=activities, acc_events=True) as profile,
        torch.profiler.record_function("audited step"),
    ):
        step()
    events = profile.events()
    (outer,) = [e for e in events if e.name == "audited step" and e.device_type.name == "CPU"]
    waits = [
        e
        for e in events
        if e.name in _WAITING_CALLS
        and outer.time_range.start <= e.time_range.start <= outer.time_range.end
    ]
    return recorder.num_callbacks, recorder.num_warnings, len(waits)


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.name)
def test_rule_agrees_with_the_device(case: OwnCase, capsys: pytest.CaptureFixture[str]) -> None:
    by_rule = audit_callable(lambda: case.build("cuda"), build=True, mode="values").syncs_per_step
    callbacks, warned, profiled = witnessed(case.build("cuda"))
    with capsys.disabled():
        print(
            f"{case.name:24} rule {by_rule:g}  callbacks {callbacks}  debug mode {warned}  "
            f"profiler {profiled}  (torch {torch.__version__})"
        )
    assert by_rule == callbacks
    if case.name not in _UNSEEN_BY_DEBUG_MODE:
        assert warned == callbacks
