"""Laws that any program obeys on the virtual clock, and the clock beside a second way to simulate.

Copies of one direction come from one stream here. With several, a copy that is delayed may let
another go first, on the clock as on a real engine, and then less waiting need not mean less time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clock.clock_figures import figures_of
from harness.clock.costs import Costs, catalogue_costs
from harness.clock.gpus import find_gpu
from harness.clock.op_work import Matrix, Work
from harness.clock.queue_timeline import QueueTimes, Timeline, WorkKind
from harness.emulator.device_clock import CEILING, Action, Changes, play
from harness.emulator.tensors.op_events import Copy

COMPUTE, SIDE, UP, DOWN = range(4)
"""Streams: two that compute, and one for the copies of each direction."""
STREAM_OF: dict[str, int] = {"h2d": UP, "d2h": DOWN}


class Step(NamedTuple):
    """One call of the host."""

    what: str
    stream: int = COMPUTE
    amount: int = 0
    """Duration of a kernel or copy, or the event of a record or wait."""


def programs(longest: int = 20) -> st.SearchStrategy[list[Step]]:
    streams, lengths, events = st.integers(0, 3), st.integers(1, longest), st.integers(0, 2)
    return st.lists(
        st.one_of(
            st.builds(Step, st.just("kernel"), st.sampled_from([COMPUTE, SIDE]), lengths),
            st.builds(lambda length: Step("h2d", UP, length), lengths),
            st.builds(lambda length: Step("d2h", DOWN, length), lengths),
            st.builds(Step, st.sampled_from(["record", "wait"]), streams, events),
            st.builds(Step, st.just("synchronize"), streams),
        ),
        min_size=1,
        max_size=25,
    )


# ---- a second way: tick by tick, looking at nothing but the queues


@dataclass
class Queued:
    """Work of one stream, or a wait in it (`event` set)."""

    number: int
    ready: int
    left: int
    event: list[Queued] | None = None
    """What must be done before a wait is over."""
    started: int | None = None
    ended: int | None = None


@dataclass
class Ticks:
    """Streams as queues that advance by one unit of time at a time."""

    latency: int
    limit: int
    now: int = 0
    streams: dict[int, deque[Queued]] = field(default_factory=dict)
    done: list[Queued] = field(default_factory=list)
    recorded: dict[int, list[Queued]] = field(default_factory=dict)

    def run(self, program: list[Step], host_cost: int) -> list[tuple[int, int]]:
        everything: list[Queued] = []
        for step in program:
            self.advance(host_cost)
            queue = self.streams.setdefault(step.stream, deque())
            match step.what:
                case "record":
                    # Done when all that is in front is done, and not before it is launched.
                    marker = Queued(-1, self.now + self.latency, 0)
                    self.recorded[step.amount] = [*queue, marker]
                case "wait":
                    waited = self.recorded.get(step.amount, [])
                    queue.append(Queued(-1, 0, 0, event=waited))
                case "synchronize":
                    while self.settle() or queue:
                        self.advance(1)
                case _:
                    while self.settle() or self.num_waiting(queue) >= self.limit:
                        self.advance(1)
                    item = Queued(len(everything), self.now + self.latency, step.amount)
                    everything.append(item)
                    queue.append(item)
        while any(self.streams.values()):
            self.advance(1)
        return [(item.started or 0, item.ended or 0) for item in everything]

    def num_waiting(self, queue: deque[Queued]) -> int:
        """Launches of one stream that have not begun."""
        return sum(item.started is None and item.event is None for item in queue)

    def advance(self, ticks: int) -> None:
        for _ in range(ticks):
            self.settle()
            for queue in self.streams.values():
                if queue and queue[0].event is None and queue[0].started is not None:
                    queue[0].left -= 1
            self.now += 1
            self.settle()

    def settle(self) -> bool:
        """Start and end what starts and ends now; always False, so that it can lead a condition."""
        moved = True
        while moved:
            moved = False
            for queue in self.streams.values():
                if not queue:
                    continue
                head = queue[0]
                if head.event is not None:
                    if all(self.is_over(item) for item in head.event):
                        head.ended = self.now
                        queue.popleft()
                        moved = True
                    continue
                if head.started is None and head.ready <= self.now:
                    head.started = self.now
                if head.started is not None and head.left == 0:
                    head.ended = self.now
                    queue.popleft()
                    moved = True
        return False

    def is_over(self, item: Queued) -> bool:
        if item.number < 0 and item.event is None:
            return item.ready <= self.now
        return item.ended is not None


def on_the_clock(
    program: list[Step], times: QueueTimes, host_cost: int = 0
) -> list[tuple[int, int]]:
    timeline = Timeline(times)
    recording = timeline.start_recording()
    for step in program:
        timeline.host_ns += host_cost
        match step.what:
            case "record":
                timeline.record(step.amount, step.stream)
            case "wait":
                timeline.wait(step.stream, step.amount)
            case "synchronize":
                timeline.block(timeline.stream_done_ns(step.stream), 0, "sync", 0)
            case "kernel":
                timeline.kernel(step.stream, step.amount, "k")
            case _:
                direction: WorkKind = "h2d" if step.what == "h2d" else "d2h"
                timeline.copy(step.stream, step.amount, direction, "c", 1)
    return [(row.start_ns, row.end_ns) for row in recording.rows]


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(0, 4), st.integers(1, 3), st.integers(0, 5))
def test_the_clock_agrees_with_a_simulation_by_ticks(
    program: list[Step], latency: int, limit: int, host_cost: int
) -> None:
    times = QueueTimes(latency_ns=latency, gap_ns=0, limit=limit)
    by_ticks = Ticks(latency, limit).run(program, host_cost)
    assert on_the_clock(program, times, host_cost) == by_ticks


def test_the_default_queue_holds_1024_launches() -> None:
    timeline = Timeline(QueueTimes())
    starts = [4_000 + number * 100_800 for number in range(1_500)]
    for number in range(1_500):
        timeline.kernel(0, 100_000, "k")
        # The host is free until launch 1,113: by then 89 kernels have started, and 8 us a launch
        # are faster than 100.8 us a kernel.
        expected = number * 8_000 if number < 1_113 else starts[number - 1_024]
        assert timeline.host_ns == expected
        timeline.host_ns = max(timeline.host_ns, number * 8_000) + 8_000


# ---- work over streams with an event for each dependency


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_events_keep_every_dependency_and_streams_never_cost_time(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    lengths = data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    streams = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    needs = [
        data.draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        for number in range(count)
    ]
    program: list[Step] = []
    for number, (length, stream) in enumerate(zip(lengths, streams, strict=True)):
        program += [Step("wait", stream, need) for need in sorted(needs[number])]
        program += [Step("kernel", stream, length), Step("record", stream, number)]
    times = QueueTimes(latency_ns=5, gap_ns=0)
    spans = on_the_clock(program, times)
    for number in range(count):
        assert all(spans[need][1] <= spans[number][0] for need in needs[number])
    in_one_stream = on_the_clock([step._replace(stream=0) for step in program], times)
    assert max(end for _, end in spans) <= max(end for _, end in in_one_stream)
    assert max(end for _, end in in_one_stream) == 5 + sum(lengths)


# ---- what a change of the program or the device may do to the step


def tape(program: list[Step]) -> list[Action]:
    """The program as ops of megabytes and products, with copies, on a real cost model."""
    actions: list[Action] = []
    for number, step in enumerate(program):
        match step.what:
            case "kernel" if step.amount % 2:
                side = 64 * step.amount
                product = Matrix(1, side, side, side)
                flops = 2 * side**3
                work = Work("aten::mm", "gemm", flops, 6 * side**2, "bfloat16", product)
                actions.append(Action("op", (work, step.stream, False)))
            case "kernel":
                work = Work("aten::add", "elementwise", 0, step.amount << 18)
                actions.append(Action("op", (work, step.stream, number % 3 == 0)))
            case "h2d" | "d2h":
                copy = Copy(step.what, step.amount << 16, number % 4 != 0, number % 4 == 0)
                actions.append(Action("copy", (copy, step.stream, "aten::copy_", number)))
            case "record":
                actions.append(Action("record", (step.amount, step.stream)))
            case "wait":
                actions.append(Action("wait", (step.stream, step.amount)))
            case _:
                actions.append(sync(step.stream, number))
    return actions


def sync(stream: int, site: int) -> Action:
    return Action("synchronize", ("cudaStreamSynchronize", stream, site))


def step_ns(actions: list[Action], costs: Costs, changes: Changes | None = None) -> int:
    played = play(actions, costs, changes or Changes())
    return played.end_ns - played.start_ns


B200 = catalogue_costs(find_gpu("B200"))


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 25), st.sampled_from([COMPUTE, SIDE, UP, DOWN]))
def test_one_more_sync_never_shortens_the_step(
    program: list[Step], place: int, stream: int
) -> None:
    actions = tape(program)
    with_sync = [*actions[:place], sync(stream, 999), *actions[place:]]
    assert step_ns(with_sync, B200) >= step_ns(actions, B200)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from(["memory", "link", "matrix", "host"]), st.floats(1, 8))
def test_a_faster_part_never_lengthens_the_step(
    program: list[Step], part: str, factor: float
) -> None:
    gpu, host = B200.gpu, B200.host
    faster = {
        "memory": replace(B200, gpu=replace(gpu, memory_gb_per_s=gpu.memory_gb_per_s * factor)),
        "link": replace(B200, gpu=replace(gpu, link_gb_per_s=gpu.link_gb_per_s * factor)),
        "matrix": replace(B200, gpu=replace(gpu, tflops={"bfloat16": 2250 * factor})),
        "host": replace(B200, host=replace(host, eager_ns=round(host.eager_ns / factor))),
    }[part]
    actions = tape(program)
    assert step_ns(actions, faster) <= step_ns(actions, B200)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sets(st.integers(0, 24)))
def test_fewer_waits_never_lengthen_the_step_and_the_ceiling_is_the_least(
    program: list[Step], gone: set[int]
) -> None:
    actions = tape(program)
    whole = step_ns(actions, B200)
    fewer = step_ns(actions, B200, Changes(without=frozenset(gone)))
    none = step_ns(actions, B200, Changes(without_waits=True))
    assert step_ns(actions, B200, CEILING) <= none <= fewer <= whole


@settings(max_examples=60, deadline=None)
@given(programs())
def test_waits_expose_no_more_than_they_block_and_together_no_more_than_is_idle(
    program: list[Step],
) -> None:
    figures = figures_of(play(tape(program), B200))
    assert all(0 <= cost.exposed_ns <= cost.blocked_ns for cost in figures.waits)
    assert sum(cost.exposed_ns for cost in figures.waits) <= figures.idle_ns
    assert 0 <= figures.hidden_copy_ns <= figures.copy_ns


def test_a_reload_in_two_buffers_by_hand() -> None:
    # Four layers compute 100 each on stream 0; each needs a copy of 30 on stream 1.
    times = QueueTimes(latency_ns=0, gap_ns=0)
    single, double = [], []
    for layer in range(4):
        single += [
            Step("record", COMPUTE, 0), Step("wait", UP, 0),  # the buffer is free
            Step("h2d", UP, 30), Step("record", UP, 1), Step("wait", COMPUTE, 1),
            Step("kernel", COMPUTE, 100),
        ]  # fmt: skip
        slot = 10 + layer % 2
        double += [
            Step("wait", UP, slot),
            Step("h2d", UP, 30), Step("record", UP, 1), Step("wait", COMPUTE, 1),
            Step("kernel", COMPUTE, 100), Step("record", COMPUTE, slot),
        ]  # fmt: skip
    # L (c + g) against c + L g, as c < g: all copies but the first hide.
    assert max(end for _, end in on_the_clock(single, times)) == 4 * (100 + 30)
    assert max(end for _, end in on_the_clock(double, times)) == 30 + 4 * 100


@pytest.mark.parametrize(("kernel_us", "exposed_us"), [(5, 16.6), (200, 19.8)])
def test_what_one_read_exposes_by_hand(kernel_us: int, exposed_us: float) -> None:
    """A kernel, `.item()`, a kernel."""
    add = Work("aten::add", "elementwise", 0, 1)
    ns = kernel_us * 1e3
    costs = replace(B200, curves={"elementwise": [(1.0, ns), (2.0, ns)]})
    op = Action("op", (add, 0, False))
    figures = figures_of(play([op, Action("read", (0, "aten::item", 0)), op], costs))
    (wait,) = figures.waits
    # Idle are 0.8 us before the copy of 1.8, and after it 7 to come back, 8 for the next op and 4
    # until that starts. The host waits from 10, while the kernel runs from 12.
    assert figures.idle_ns == 800 + 7_000 + 8_000 + 4_000
    assert wait.blocked_ns == (12 + kernel_us - 10) * 1_000 + 800 + 1_800 + 7_000
    assert wait.exposed_ns == exposed_us * 1_000
