"""Who watches one emulated device, and how they are told what happened on it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.emulator.tensors.op_events import Access, OpEvent, Wait
from harness.emulator.tensors.stream_book import StreamAction
from harness.emulator.tensors.tensor import EmulatedTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.emulator.dispatch.phases import PhaseTracker
    from harness.emulator.tensors.layouts import LayoutTable
    from harness.emulator.tensors.op_events import Copy, Observer
    from harness.emulator.tensors.op_facts import OpFacts
    from harness.emulator.tensors.stream_book import StreamActionKind, StreamBook
    from harness.record.sync_kinds import SyncKind


class Observers:
    """The observers of one device. Telling nobody costs next to nothing."""

    def __init__(self, layouts: LayoutTable, streams: StreamBook, phases: PhaseTracker) -> None:
        self._layouts = layouts
        self._streams = streams
        self._phases = phases
        self.num_ops = 0
        """Ops so far on the device, which those who run them count up: an event's position."""
        self.doubts: dict[str, str] = {}
        """Op that waited -> how often it may wait, where the sources leave doubt."""
        self.of_every_op: tuple[Observer, ...] = ()
        self._of_waits: tuple[Observer, ...] = ()

    def add(self, observer: Observer) -> None:
        """Send events to `observer` from the next op on."""
        if observer.wants_every_op:
            self.of_every_op += (observer,)
        else:
            self._of_waits += (observer,)

    def clear(self) -> None:
        """Send no more events."""
        self.of_every_op = self._of_waits = ()

    @contextmanager
    def uncounted_waits(self) -> Iterator[None]:
        """Waits inside are the emulator's own and no GPU's; those who count waits see none."""
        observers, self._of_waits = self._of_waits, ()
        try:
            yield
        finally:
            self._of_waits = observers

    def tell(
        self,
        op: str,
        waits: tuple[Wait, ...] = (),
        copy: Copy | None = None,
        reads: tuple[Access, ...] = (),
        writes: tuple[Access, ...] = (),
        signature: tuple[object, ...] = (),
        random: bool = False,
        lineage: int | None = None,
        constants: int = 0,
    ) -> None:
        """Tell of an op that ran; the arguments are those of `OpEvent`."""
        if not self.of_every_op and not self._of_waits:
            return
        for wait in waits:
            if wait.doubt is not None and self._of_waits:
                self.doubts[wait.op] = wait.doubt
        event = OpEvent(
            self.num_ops, op, self._phases.current(exactly=bool(waits)), self._streams.current,
            reads, writes, signature, random, waits, copy, lineage, constants,
        )  # fmt: skip
        for observer in self.of_every_op:
            observer.on_event(event)
        if waits or copy:
            for observer in self._of_waits:
                observer.on_event(event)

    def tell_api_wait(self, api: str, kind: SyncKind) -> None:
        """Tell of a wait that is no op, such as `torch.cuda.synchronize()`."""
        self.tell(api, (Wait(api, kind, 1),))

    def tell_unseen(self, waits: Sequence[Wait]) -> None:
        """Tell of ops that wait on CUDA and did not run here."""
        for wait in waits:
            self.num_ops += 1
            self.tell(wait.op, (wait,))

    def tell_stream_action(
        self,
        kind: StreamActionKind,
        stream: int,
        event: int | None = None,
        storage: int | None = None,
    ) -> None:
        """Tell of a call on a stream or event; the arguments are those of `StreamAction`."""
        action = StreamAction(kind, self.num_ops, stream, event, storage)
        for observer in self.of_every_op + self._of_waits:
            observer.on_stream_action(action)

    def accesses(self, tensors: Sequence[Any]) -> tuple[Access, ...]:
        """Which data these arguments hold now; anything but device tensors is passed over."""
        found: list[Access] = []
        layouts = self._layouts
        sizes = layouts.num_bytes
        for t in tensors:
            if type(t) is EmulatedTensor:
                layout = t.layout_number
                if layout < 0:
                    layout = layouts.of(t)
                storage = t.allocation
                parameter = getattr(t, "_is_param", False)
                found.append(
                    Access(storage.number, storage.version, layout, sizes[layout], parameter)
                )
        return tuple(found)

    def writes(
        self, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> tuple[Access, ...]:
        """Which data the op left: its results, and the arguments it wrote in place."""
        results = result if isinstance(result, list | tuple) else (result,)
        if not facts.writes:
            return self.accesses(results)
        written: list[Any] = []
        for place in facts.writes:
            argument = args[place] if isinstance(place, int) else kwargs.get(place)
            written.extend(argument if isinstance(argument, list | tuple) else (argument,))
        known = {id(tensor) for tensor in written}
        written.extend(tensor for tensor in results if id(tensor) not in known)
        return self.accesses(written)
