"""`torch.cuda.Stream` and `torch.cuda.Event` of the emulated device, over its stream book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.emulator.tensors.tensor import CUDA
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from types import TracebackType

    from harness.emulator.dispatch.observers import Observers
    from harness.emulator.tensors.op_events import ClockAnswers
    from harness.emulator.tensors.stream_book import StreamBook
    from harness.emulator.tensors.tensor import EmulatedTensor


class StreamApi:
    """Makes the classes that stand for `torch.cuda.Stream` and `Event` on one device."""

    def __init__(self, observers: Observers, book: StreamBook, clock: ClockAnswers | None):
        self.observers = observers
        self.book = book
        self.clock = clock
        """Answers `Event.elapsed_time` and `query`; without one every event is at 0 and done."""
        api = self

        class Stream:
            """Stands for `torch.cuda.Stream`."""

            def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
                number = kwargs.pop("number", None)
                self.number: int = api.book.new_stream() if number is None else number
                self.priority = priority
                self.device = CUDA
                self.device_index = 0
                self.stream_id = self.cuda_stream = self.number

            def wait_event(self, event: Event) -> None:
                api.observers.tell_stream_action("wait", self.number, event.number)

            def wait_stream(self, stream: Stream) -> None:
                self.wait_event(stream.record_event())

            def record_event(self, event: Event | None = None) -> Event:
                event = Event() if event is None else event
                event.record(self)
                return event

            def synchronize(self) -> None:
                api.observers.tell_stream_action("synchronize_stream", self.number)
                api.observers.tell_api_wait("cudaStreamSynchronize", SyncKind.EXPLICIT_SYNCHRONIZE)

            def query(self) -> bool:
                return api.clock is None or api.clock.stream_done(self.number)

            def is_capturing(self) -> bool:
                return False

            def __enter__(self) -> Stream:
                self._outer = api.book.current
                api.book.current = self.number
                return self

            def __exit__(
                self,
                exc_type: type[BaseException] | None,
                exc: BaseException | None,
                traceback: TracebackType | None,
            ) -> None:
                api.book.current = self._outer

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and other.number == self.number

            def __hash__(self) -> int:
                return hash(self.number)

        class Event:
            """Stands for `torch.cuda.Event`."""

            def __init__(
                self,
                enable_timing: bool = False,
                blocking: bool = False,
                interprocess: bool = False,
                external: bool = False,
                device: Any = None,
            ) -> None:
                self.number = api.book.new_event()
                self.enable_timing = enable_timing
                self._recorded = False

            def record(self, stream: Stream | None = None) -> None:
                number = api.book.current if stream is None else stream.number
                self._recorded = True
                api.observers.tell_stream_action("record", number, self.number)

            def wait(self, stream: Stream | None = None) -> None:
                number = api.book.current if stream is None else stream.number
                api.observers.tell_stream_action("wait", number, self.number)

            def synchronize(self) -> None:
                api.observers.tell_stream_action("synchronize_event", api.book.current, self.number)
                api.observers.tell_api_wait("cudaEventSynchronize", SyncKind.EXPLICIT_SYNCHRONIZE)

            def query(self) -> bool:
                return api.clock is None or api.clock.event_done(self.number)

            def elapsed_time(self, end_event: Event) -> float:
                if not (self._recorded and end_event._recorded):
                    raise ValueError(
                        "Both events must be recorded before calculating elapsed time."
                    )
                if api.clock is None:
                    return 0.0
                return (api.clock.event_ms(end_event.number) or 0.0) - (
                    api.clock.event_ms(self.number) or 0.0
                )

        self.stream_class = Stream
        self.event_class = Event

    def record_tensor(self, tensor: EmulatedTensor, stream: Any) -> None:
        """`Tensor.record_stream`: the allocation outlives the stream's present work."""
        self.observers.tell_stream_action(
            "record_tensor", stream.number, storage=tensor.allocation.number
        )

    def current(self, device: Any = None) -> Any:
        """The stream that ops go to now."""
        return self.stream_class(number=self.book.current)

    def default(self, device: Any = None) -> Any:
        """The default stream."""
        return self.stream_class(number=0)

    def set_current(self, stream: Any) -> None:
        """Send later ops to `stream`."""
        if stream is not None:
            self.book.current = stream.number
