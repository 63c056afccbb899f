"""The virtual clock: watches an emulated device and moves time with every op, copy and wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness.clock.op_work import Work, work_of
from harness.clock.queue_timeline import Call, Timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clock.costs import Costs
    from harness.clock.queue_timeline import Recording
    from harness.emulator.tensors.device_memory import MemoryBook
    from harness.emulator.tensors.op_events import AuditedPhase, Copy, OpEvent
    from harness.emulator.tensors.op_facts import OpFacts
    from harness.emulator.tensors.stream_book import StreamAction
    from harness.record.sync_kinds import SyncKind

_NS_PER_MS = 1e6
_SCALAR_BYTES = 8


class Action(NamedTuple):
    """One call on a `VirtualDevice`, kept so that it can be played again under other conditions."""

    method: str
    arguments: tuple[Any, ...]


class WaitSite(NamedTuple):
    """What a wait or copy was, for those who count them."""

    phase: AuditedPhase
    kind: SyncKind | None
    """Kind of wait by the sync rules; `None` for a copy that nobody waits for."""


class VirtualDevice:
    """Moves a timeline by what ops, copies and waits cost on one device."""

    def __init__(self, costs: Costs, *, blocking: bool = False) -> None:
        self.costs = costs
        self.timeline = Timeline(costs.queue, blocking=blocking)
        self._prices: dict[Work, tuple[int, int, int]] = {}

    def op(self, work: Work, stream: int, in_autograd: bool) -> None:
        """An op: the host queues it, and the device does its work."""
        price = self._prices.get(work)
        if price is None:
            host = self.costs.host
            price = self._prices[work] = (
                self.costs.kernel_ns(work), host.op_ns(work, False), host.op_ns(work, True),
            )  # fmt: skip
        timeline = self.timeline
        recording = timeline.recording
        began = timeline.host_ns
        timeline.host_ns = began + price[1 + in_autograd]
        if price[0]:
            timeline.kernel(stream, price[0], work.op)
            if recording is not None:
                recording.calls.append(Call(began, timeline.host_ns, work.op))

    def copy(self, copy: Copy, stream: int, op: str, site: int) -> None:
        """A copy between host and device, or within the device."""
        costs, timeline = self.costs, self.timeline
        began = timeline.host_ns
        timeline.host_ns += costs.host.small_copy_ns
        if copy.pinned is False and copy.direction == "h2d":
            timeline.host_ns += costs.staging_ns(copy.num_bytes)
        duration = costs.copy_ns(copy.direction, copy.num_bytes, copy.pinned)
        timeline.copy(stream, duration, copy.direction, op, copy.num_bytes)
        if copy.blocking and copy.direction != "d2d":
            timeline.block(
                timeline.stream_done_ns(stream), costs.host.sync_ns, "cudaStreamSynchronize", site
            )
        if timeline.recording is not None:
            timeline.recording.calls.append(Call(began, timeline.host_ns, op))

    def read(self, stream: int, op: str, site: int) -> None:
        """The host reads a few bytes of the device: a small copy and a wait."""
        costs, timeline = self.costs, self.timeline
        began = timeline.host_ns
        timeline.host_ns += costs.host.kernel_ns
        timeline.copy(stream, costs.copy_ns("d2h", _SCALAR_BYTES, True), "d2h", op, _SCALAR_BYTES)
        timeline.block(
            timeline.stream_done_ns(stream), costs.host.sync_ns, "cudaStreamSynchronize", site
        )
        if timeline.recording is not None:
            timeline.recording.calls.append(Call(began, timeline.host_ns, op))

    def synchronize(self, api: str, target: int | None, site: int) -> None:
        """The host waits for an event, a stream, or (`target` `None`) the whole device."""
        timeline = self.timeline
        if api == "cudaEventSynchronize" and target is not None:
            until = timeline.event_ns(target) or 0
        elif api == "cudaStreamSynchronize" and target is not None:
            until = timeline.stream_done_ns(target)
        else:
            until = timeline.all_done_ns()
        timeline.block(until, self.costs.host.sync_ns, api, site)

    def record(self, event: int, stream: int) -> None:
        """An event is recorded on a stream."""
        self.timeline.host_ns += self.costs.host.stream_ns
        self.timeline.record(event, stream)

    def stream_call(self) -> None:
        """Any other call on a stream."""
        self.timeline.host_ns += self.costs.host.stream_ns

    def wait(self, stream: int, event: int) -> None:
        """A stream is told to wait for an event; the host goes on."""
        self.timeline.host_ns += self.costs.host.stream_ns
        self.timeline.wait(stream, event)


class DeviceClock:
    """Answers what time it is on an emulated device.

    An observer of waits, copies and stream calls, and the dispatcher's `pacer` for everything else.
    """

    wants_every_op = False

    def __init__(self, costs: Costs) -> None:
        self.machine = VirtualDevice(costs)
        self.tape: list[Action] | None = None
        """What happened, to be played again; `None` while it is not kept."""
        self.sites: list[WaitSite] = []
        """All waits and copies so far; `WaitRow.site` is a place in this list."""
        self.latest_sites = range(0)
        """Those of the op that was told of last."""
        self._works: dict[tuple[object, ...], Work] = {}
        self._memory: MemoryBook | None = None
        self._awaited: int | None = None

    # ---- what the device answers

    def watch_memory(self, memory: MemoryBook) -> None:
        """Note the bytes allocated at each op while recording."""
        self._memory = memory

    def now_ms(self) -> float:
        """Where the host is."""
        return self.machine.timeline.host_ns / _NS_PER_MS

    def event_ms(self, event: int) -> float | None:
        """When an event is reached; `None` where it was never recorded."""
        reached = self.machine.timeline.event_ns(event)
        return None if reached is None else reached / _NS_PER_MS

    def event_done(self, event: int) -> bool:
        """Whether an event is reached by now, as `Event.query` asks."""
        reached = self.machine.timeline.event_ns(event)
        return reached is None or reached <= self.machine.timeline.host_ns

    def stream_done(self, stream: int) -> bool:
        """Whether a stream is idle by now, as `Stream.query` asks."""
        timeline = self.machine.timeline
        return timeline.stream_done_ns(stream) <= timeline.host_ns

    def stop_recording(self) -> Recording:
        """Keep no more; the recording since `start_recording`."""
        self.tape = None
        return self.machine.timeline.stop_recording()

    def start_recording(self, *, keep_tape: bool = False) -> Recording:
        """Keep all rows, waits and calls from now on, and the actions with `keep_tape`."""
        self.tape = [] if keep_tape else None
        return self.machine.timeline.start_recording()

    # ---- what the device tells

    def on_op(
        self,
        facts: OpFacts,
        signature: tuple[object, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        stream: int,
    ) -> None:
        """One op that is no copy between host and device."""
        work = self._works.get(signature)
        if work is None:
            work = work_of(facts.op, args, kwargs, result)
            if not work.depends_on_data:
                self._works[signature] = work
        in_autograd = torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()
        self.machine.op(work, stream, in_autograd)
        if self.tape is not None:
            self.tape.append(Action("op", (work, stream, in_autograd)))
        self._note_memory()

    def on_event(self, event: OpEvent) -> None:
        """A wait or a copy."""
        first = len(self.sites)
        self._take(event)
        self.latest_sites = range(first, len(self.sites))

    def _take(self, event: OpEvent) -> None:
        if event.copy is not None:
            self._do("copy", event.copy, event.stream, event.op, self._site(event))
        elif event.op.startswith("cuda"):
            target, self._awaited = self._awaited, None
            self._do("synchronize", event.op, target, self._site(event))
        else:
            for wait in event.waits:
                for _ in range(wait.syncs):
                    self._do("read", event.stream, event.op, self._site(event))

    def on_stream_action(self, action: StreamAction) -> None:
        """A call on a stream or event."""
        match action.kind:
            case "record":
                self._do("record", action.event, action.stream)
            case "wait":
                self._do("wait", action.stream, action.event)
            case "record_tensor":
                # Its bytes count as free when the tensor dies, whatever the stream still does:
                # torch's `memory_allocated` counts them so, too.
                self._do("stream_call")
            case "synchronize_stream":
                self._awaited = action.stream
            case "synchronize_event":
                self._awaited = action.event
            case "synchronize_device":
                self._awaited = None

    def _do(self, method: str, *arguments: Any) -> None:
        getattr(self.machine, method)(*arguments)
        if self.tape is not None:
            self.tape.append(Action(method, arguments))
        self._note_memory()

    def _site(self, event: OpEvent) -> int:
        """Number of a wait that is about to be made."""
        self.sites.append(WaitSite(event.phase, event.waits[0].kind if event.waits else None))
        return len(self.sites) - 1

    def _note_memory(self) -> None:
        recording = self.machine.timeline.recording
        if recording is None or self._memory is None:
            return
        live = self._memory.live_bytes
        if not recording.memory or recording.memory[-1][1] != live:
            recording.memory.append((self.machine.timeline.host_ns, live))


@dataclass(frozen=True)
class Changes:
    """What is different when a tape is played again."""

    without: frozenset[int] = frozenset()
    """Waits that do not take place, by site number: reads of the device go, copies go on alone."""
    without_waits: bool = False
    """No wait takes place."""
    hidden_copies: bool = False
    """Copies between host and device take no time."""


AS_IT_WAS = Changes()
CEILING = Changes(without_waits=True, hidden_copies=True)


def play(tape: Sequence[Action], costs: Costs, changes: Changes = AS_IT_WAS) -> Recording:
    """The actions again, on an idle device with these costs, until all of them are done."""
    machine = VirtualDevice(costs)
    machine.timeline.start_recording()
    for method, arguments in tape:
        if method in ("read", "synchronize", "copy"):
            arguments = _changed(method, arguments, changes)
            if not arguments:
                continue
        getattr(machine, method)(*arguments)
    machine.timeline.host_ns = max(machine.timeline.host_ns, machine.timeline.all_done_ns())
    return machine.timeline.stop_recording()


def _changed(method: str, arguments: tuple[Any, ...], changes: Changes) -> tuple[Any, ...]:
    """The arguments of the call as it takes place now; empty where it does not."""
    gone = changes.without_waits or arguments[-1] in changes.without
    if method != "copy":
        return () if gone else arguments
    copy, *rest = arguments
    if changes.hidden_copies and copy.direction != "d2d":
        return ()
    if gone:
        copy = copy._replace(blocking=False, pinned=True)
    return (copy, *rest)
