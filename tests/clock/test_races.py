"""Races: a stream that forgets to wait is caught, and code that waits is left in peace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from harness.audit.emulated.audit_clock import ClockOptions
from harness.audit.emulated.emulated_audit import audit_callable
from optimizations.copy_engine import CudaCopyEngine
from optimizations.host_pool import HostPool
from optimizations.input_offload import InputOffloader, OffloadPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.record.audit_report import Race

LENGTH = 4096
RACES = ClockOptions(races=True)


def races_of(step: Callable[[], Any]) -> tuple[Race, ...]:
    return audit_callable(step, warmup=0, mode="shapes", clock=RACES).races


class ForgetfulEngine(CudaCopyEngine):
    """The engine with one of its `wait_event` calls left out."""

    def __init__(self, device: torch.device, *, shared_lane: bool, forgets: str) -> None:
        super().__init__(device, shared_lane=shared_lane)
        self._forgets = forgets

    def offload(self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Any]) -> Any:
        if self._forgets == "compute before an offload":
            return self._queue(self._offload_stream, source, target, after)
        return super().offload(source, target, after)

    def reload(self, source: torch.Tensor, target: torch.Tensor, after: Sequence[Any]) -> Any:
        arrived, _ = after
        if self._forgets == "readers of the buffer":
            after = (arrived,)
        return super().reload(source, target, after)

    def wait(self, mark: Any, *reads: torch.Tensor) -> None:
        if self._forgets != "the reload":
            super().wait(mark, *reads)


def reloading_step(*, shared_lane: bool, prefetch: int, forgets: str = "") -> None:
    """Layers whose inputs leave in forward and come back in backward, as checkpoint-reload does."""
    device = torch.device("cuda", 0)
    engine = ForgetfulEngine(device, shared_lane=shared_lane, forgets=forgets)
    policy = OffloadPolicy(
        num_slots=2,
        prefetch_depth=prefetch,
        max_deferred_waits=prefetch,
        keep_last=1,
        min_free_bytes=0,
    )
    offloader = InputOffloader(engine, HostPool(engine), policy)
    layers = [nn.Linear(8, 8, device=device) for _ in range(5)]
    hidden = torch.ones(LENGTH, 8, device=device)
    stored = []
    with torch.no_grad():
        for layer in layers:
            stored.append(offloader.store(hidden))
            hidden = layer(hidden)
            offloader.end_of_layer()
        for layer in reversed(layers):
            one = stored.pop()
            layer(offloader.fetch(one)).sum()
            del one
    offloader.finish()


@pytest.mark.parametrize(("shared_lane", "prefetch"), [(True, 0), (False, 1)])
def test_the_copy_engine_orders_every_use(shared_lane: bool, prefetch: int) -> None:
    step = partial(reloading_step, shared_lane=shared_lane, prefetch=prefetch)
    assert races_of(step) == ()


@pytest.mark.parametrize(
    ("forgets", "kind"),
    [
        ("the reload", "read before write"),
        ("compute before an offload", "read before write"),
        ("readers of the buffer", "write before read"),
    ],
)
def test_leaving_out_one_wait_of_the_copy_engine_is_caught_with_both_sites(
    forgets: str, kind: str
) -> None:
    step = partial(reloading_step, shared_lane=False, prefetch=1, forgets=forgets)
    races = [race for race in races_of(step) if race.kind == kind]
    assert races, forgets
    for race in races:
        sides = f"{race.first} {race.second}"
        assert "copy_engine.py:" in sides
        assert "stream 0" in sides
        assert all(":" in side.split(" ")[0] for side in (race.first, race.second))


@pytest.mark.parametrize("waits", [True, False])
def test_a_reload_that_does_not_wait_for_its_offload_races_in_host_memory(waits: bool) -> None:
    def step() -> None:
        engine = CudaCopyEngine(torch.device("cuda", 0), shared_lane=False)
        x = torch.ones(LENGTH, dtype=torch.uint8, device="cuda")
        host = engine.allocate_host(LENGTH)
        arrived = engine.offload(x, host, ())
        engine.reload(host, engine.allocate_device(LENGTH), (arrived,) if waits else ())

    assert [race.kind for race in races_of(step)] == ([] if waits else ["read before write"])


def test_a_side_stream_that_reads_what_compute_still_writes() -> None:
    def step() -> None:
        x = torch.ones(LENGTH, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            x.sum()

    (race,) = races_of(step)
    assert race.kind == "read before write"
    assert race.count == 1


def test_waiting_for_the_stream_an_event_or_on_the_host_orders_it() -> None:
    def by_stream() -> None:
        x = torch.ones(LENGTH, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.sum()

    def by_host() -> None:
        x = torch.ones(LENGTH, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            x.sum()

    def by_read() -> None:
        x = torch.ones(LENGTH, device="cuda")
        x.sum().item()
        with torch.cuda.stream(torch.cuda.Stream()):
            x.sum()

    def through_a_third_stream() -> None:
        x = torch.ones(LENGTH, device="cuda")
        second, third = torch.cuda.Stream(), torch.cuda.Stream()
        second.wait_stream(torch.cuda.current_stream())
        third.wait_stream(second)
        with torch.cuda.stream(third):
            x.sum()

    for step in (by_stream, by_host, by_read, through_a_third_stream):
        assert races_of(step) == (), step.__name__


def test_an_event_recorded_too_early_orders_nothing() -> None:
    def step() -> None:
        event = torch.cuda.Event()
        event.record()
        x = torch.ones(LENGTH, device="cuda")
        side = torch.cuda.Stream()
        side.wait_event(event)
        with torch.cuda.stream(side):
            x.sum()

    assert len(races_of(step)) == 1


def test_two_streams_on_two_halves_of_one_buffer_do_not_race() -> None:
    def halves(overlap: int) -> None:
        x = torch.empty(2 * LENGTH, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            x[: LENGTH + overlap].fill_(1.0)
        x[LENGTH:].fill_(2.0)

    assert races_of(partial(halves, 0)) == ()
    assert "write before write" in {race.kind for race in races_of(partial(halves, 1))}
