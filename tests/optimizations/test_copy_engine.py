"""Copy engines copy in order and beside compute; pools and offloaders lend and take back."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from optimizations.copy_engine import ThreadCopyEngine, open_copy_engine
from optimizations.host_pool import HostBuffer, HostPool
from optimizations.input_offload import InputOffloader, OffloadPolicy
from tests.optimizations.scheduled_engine import ScheduledCopyEngine

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 30.0
"""Only ever waited out by a test that fails."""


class HeldEngine(ThreadCopyEngine):
    """Copies of the value `holds` begin when the test says so; `order` lists the values copied."""

    def __init__(self, *, holds: int, shared_lane: bool) -> None:
        super().__init__(shared_lane=shared_lane)
        self._holds = holds
        self.go = threading.Event()
        self.order: list[int] = []

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        if int(source[0]) == self._holds:
            assert self.go.wait(WAIT_S)
        self.order.append(int(source[0]))
        super().copy(source, target)


def full(value: int) -> torch.Tensor:
    return torch.full((64,), value, dtype=torch.uint8)


@pytest.mark.parametrize("shared_lane", [True, False])
def test_both_directions_run_beside_the_caller_and_apart_only_with_two_lanes(
    shared_lane: bool,
) -> None:
    engine = HeldEngine(holds=1, shared_lane=shared_lane)
    host, device = full(0), full(0)
    offload = engine.offload(full(1), host, ())
    reload = engine.reload(full(2), device, ())
    assert not offload.done()
    if not shared_lane:
        engine.wait(reload)
        assert torch.equal(device, full(2))
    engine.go.set()
    engine.wait(offload)
    engine.wait(reload)
    assert torch.equal(host, full(1))
    assert engine.order == ([1, 2] if shared_lane else [2, 1])
    engine.close()


def test_a_copy_starts_after_the_marks_it_is_given() -> None:
    engine = HeldEngine(holds=1, shared_lane=False)
    buffer, device = full(0), full(0)
    first = engine.offload(full(1), buffer, ())
    second = engine.reload(full(2), device, (first,))
    assert not second.done()
    engine.go.set()
    engine.wait(second)
    assert engine.order == [1, 2]
    engine.close()


@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]),
    shape=st.lists(st.integers(1, 5), max_size=3),
)
def test_a_round_trip_keeps_every_bit(dtype: torch.dtype, shape: list[int]) -> None:
    engine = ThreadCopyEngine(shared_lane=True)
    engine.close()  # inline from here on, so that examples start no threads
    source = torch.randint(0, 100, shape).to(dtype)
    host, back = torch.empty_like(source), torch.empty_like(source)
    arrived = engine.offload(source, host, ())
    engine.wait(engine.reload(host, back, (arrived,)), back)
    assert torch.equal(back, source)


def test_a_closed_engine_has_no_threads_and_still_copies() -> None:
    engine = ThreadCopyEngine(shared_lane=False)
    target = full(0)
    queued = [engine.offload(full(3), target, ()), engine.reload(full(4), full(0), ())]
    engine.close()
    assert all(mark.done() for mark in queued)
    assert not [t for t in threading.enumerate() if t.name.startswith("gapless-")]
    engine.wait(engine.reload(full(5), target, ()))
    assert torch.equal(target, full(5))
    engine.close()


def test_a_failed_copy_raises_at_its_waiter_and_not_at_later_copies() -> None:
    class Broken(ThreadCopyEngine):
        def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
            if int(source[0]) == 1:
                raise OSError("the disk of the mind is full")
            super().copy(source, target)

    engine = Broken(shared_lane=True)
    target = full(0)
    failed = engine.offload(full(1), target, ())
    later = engine.offload(full(2), target, (failed,))
    engine.wait(later)
    assert torch.equal(target, full(2))
    with pytest.raises(OSError, match="full"):
        engine.wait(failed)
    engine.close()


def test_a_device_without_an_engine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="meta device cannot be offloaded"):
        open_copy_engine(torch.device("meta"), shared_lane=True)


@given(
    st.lists(
        st.one_of(
            st.builds(lambda size: ("take", size), st.integers(1, 9)),
            st.builds(lambda index: ("give", index), st.integers(0, 5)),
        ),
        max_size=40,
    )
)
def test_a_pool_lends_each_buffer_once_and_holds_no_more_than_were_out(
    operations: list[tuple[str, int]],
) -> None:
    pool = HostPool(ScheduledCopyEngine())
    out: list[HostBuffer] = []
    most_out = 0
    for operation, number in operations:
        if operation == "take":
            buffer = pool.take(number)
            assert buffer.num_bytes >= number
            assert all(buffer is not other for other in out)
            out.append(buffer)
        elif out:
            pool.give_back(out.pop(number % len(out)))
        most_out = max(most_out, len(out))
        assert len(out) + pool.num_free <= most_out
        assert pool.num_bytes >= sum(buffer.num_bytes for buffer in out)
    while out:
        pool.give_back(out.pop())
    pool.clear()
    assert pool.num_bytes == pool.num_free == 0


POLICY = OffloadPolicy(
    num_slots=2, prefetch_depth=1, max_deferred_waits=0, keep_last=0, min_free_bytes=0
)


def store_all(offloader: InputOffloader, values: range) -> list[Any]:
    stored = []
    for value in values:
        stored.append(offloader.store(full(value)))
        offloader.end_of_layer()
    return stored


def fetch(offloader: InputOffloader, stored: Any) -> torch.Tensor:
    with torch.no_grad():
        return offloader.fetch(stored)


def test_a_prefetch_that_another_input_takes_over_is_loaded_again() -> None:
    engine = ScheduledCopyEngine([1])
    offloader = InputOffloader(engine, HostPool(engine), POLICY)
    stored = store_all(offloader, range(4))
    seen = {index: fetch(offloader, stored[index]) for index in (3, 0, 2, 1)}
    for index, tensor in seen.items():
        assert torch.equal(tensor, full(index))
    assert offloader.device_buffer_bytes == 2 * 64


def test_a_stored_input_does_not_hold_the_graph_that_made_it() -> None:
    engine = ScheduledCopyEngine()
    offloader = InputOffloader(engine, HostPool(engine), replace(POLICY, keep_last=1))
    made = torch.ones(64, requires_grad=True) * 2
    resident = fetch(offloader, offloader.store(made))
    assert resident.data_ptr() == made.data_ptr()
    assert resident.grad_fn is None


def test_what_a_second_order_graph_reads_is_in_no_buffer() -> None:
    engine = ScheduledCopyEngine([1])
    offloader = InputOffloader(engine, HostPool(engine), POLICY)
    stored = store_all(offloader, range(4))
    with torch.enable_grad():
        outlives = [offloader.fetch(stored.pop()) for _ in range(2)]
    for other in store_all(offloader, range(10, 14)):
        fetch(offloader, other)
    assert torch.equal(outlives[0], full(3))
    assert torch.equal(outlives[1], full(2))


def test_a_reload_that_failed_can_be_tried_again() -> None:
    class FailsOnce(ThreadCopyEngine):
        failed = False

        def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
            if int(source[0]) == 7 and target is not source and self.armed and not self.failed:
                self.failed = True
                raise OSError("once")
            super().copy(source, target)

        armed = False

    engine = FailsOnce(shared_lane=True)
    offloader = InputOffloader(engine, HostPool(engine), replace(POLICY, prefetch_depth=0))
    (stored,) = store_all(offloader, range(7, 8))
    engine.armed = True
    with pytest.raises(OSError, match="once"):
        fetch(offloader, stored)
    assert torch.equal(fetch(offloader, stored), full(7))
    engine.close()


def test_threads_share_an_offloader() -> None:
    engine = ThreadCopyEngine(shared_lane=False)
    offloader = InputOffloader(engine, HostPool(engine), POLICY)
    wrong: list[int] = []

    def work(first: int) -> Callable[[], None]:
        def loop() -> None:
            for _ in range(30):
                stored = store_all(offloader, range(first, first + 4))
                while stored:
                    tensor = fetch(offloader, stored[-1])
                    if not torch.equal(tensor, full(first + len(stored) - 1)):
                        wrong.append(first)
                    stored.pop()

        return loop

    threads = [threading.Thread(target=work(first)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)
    engine.close()
