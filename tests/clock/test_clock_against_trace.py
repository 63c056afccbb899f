"""Two ways to one figure: the clock's own, and those the trace audit reads from its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from harness.audit.emulated.audit_clock import ClockOptions
from harness.audit.emulated.emulated_audit import audit_callable
from harness.audit.trace import audit_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.record.audit_report import AuditReport

HIDDEN = 1024


def layers(count: int) -> list[torch.Tensor]:
    return [torch.empty(HIDDEN, HIDDEN, dtype=torch.bfloat16, device="cuda") for _ in range(count)]


def compute_only() -> Callable[[], None]:
    weights = layers(6)

    def step() -> None:
        x = torch.ones(2048, HIDDEN, dtype=torch.bfloat16, device="cuda")
        for weight in weights:
            x = torch.relu(x @ weight)

    return step


def reads_in_the_loop() -> Callable[[], None]:
    weights = layers(6)

    def step() -> None:
        x = torch.ones(2048, HIDDEN, dtype=torch.bfloat16, device="cuda")
        for number, weight in enumerate(weights):
            x = x @ weight
            if number % 2:
                x = x * x.abs().mean().item()
        x.nonzero()

    return step


def copies_on_two_streams() -> Callable[[], None]:
    weights = layers(6)
    host = torch.empty(2048, HIDDEN, dtype=torch.bfloat16).pin_memory()
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def step() -> None:
        x = torch.ones(2048, HIDDEN, dtype=torch.bfloat16, device="cuda")
        for weight in weights:
            with torch.cuda.stream(up):
                y = host.to("cuda", non_blocking=True)
            x = x @ weight
            torch.cuda.current_stream().wait_stream(up)
            x = x + y
            down.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(down):
                host.copy_(x, non_blocking=True)
        down.synchronize()

    return step


def pageable_batch() -> Callable[[], None]:
    weights = layers(3)
    batch = torch.ones(2048, HIDDEN, dtype=torch.bfloat16)

    def step() -> None:
        x = batch.to("cuda")
        for weight in weights:
            x = x @ weight
        x.sum().cpu()

    return step


PROGRAMS = [compute_only, reads_in_the_loop, copies_on_two_streams, pageable_batch]


def audited(program: Callable[[], Callable[[], None]], path: Path) -> AuditReport:
    return audit_callable(
        program,
        build=True,
        gpu="H200",
        mode="shapes",
        clock=ClockOptions(timeline=str(path)),
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_trace_audit_reads_the_clocks_own_figures(
    program: Callable[[], Callable[[], None]], tmp_path: Path
) -> None:
    path = tmp_path / "timeline.json.gz"
    clock = audited(program, path)
    trace = audit_trace(path)
    ours, theirs = clock.timeline, trace.timeline
    assert theirs.span_ms == pytest.approx(ours.span_ms, abs=1e-9)
    assert theirs.busy_ms == pytest.approx(ours.busy_ms, abs=1e-9)
    assert theirs.idle_ms == pytest.approx(ours.idle_ms, abs=1e-9)
    if ours.overlap is None:
        assert theirs.overlap is None
    else:
        assert theirs.overlap == pytest.approx(ours.overlap, abs=1e-9)
    blocked, exposed = (
        sum(getattr(site, name) or 0.0 for site in trace.sites)
        for name in ("blocked_ms", "exposed_ms")
    )
    waits = clock.syncs_per_step
    assert waits is not None
    assert trace.syncs_per_step == waits
    assert blocked == pytest.approx(sum(s.blocked_ms or 0.0 for s in clock.sites), abs=1e-6)
    assert exposed == pytest.approx(sum(s.exposed_ms or 0.0 for s in clock.sites), abs=1e-6)


def test_leaving_a_site_out_saves_what_it_exposes_and_no_more_than_the_ceiling(
    tmp_path: Path,
) -> None:
    plain = audited(reads_in_the_loop, tmp_path / "a.json")
    site = max(plain.sites, key=lambda s: s.count_per_step)
    report = audit_callable(
        reads_in_the_loop,
        build=True,
        gpu="H200",
        mode="shapes",
        clock=ClockOptions(without=(f"{site.file}:{site.line}",), gpus=("RTX4090",)),
    )
    step = report.modelled
    assert step is not None
    assert step.without_ms is not None
    assert site.exposed_ms is not None
    saved_ms = step.step_ms - step.without_ms
    # The reads go together with their small copies, so a little more than the exposed time.
    assert 0.9 * site.exposed_ms < saved_ms < 2 * site.exposed_ms
    assert step.ceiling_ms <= step.without_ms
    by_gpu = {
        share.gpu: share.share for share in step.shares if share.place.endswith(f"{site.line}")
    }
    # The slower the device, the less of the step a host's wait costs.
    assert by_gpu["RTX4090"] < by_gpu["H200"]


def test_compute_without_waits_or_copies_is_at_its_ceiling(tmp_path: Path) -> None:
    step = audited(compute_only, tmp_path / "a.json").modelled
    assert step is not None
    assert step.ceiling_ms == step.step_ms
