"""What the emulated device tells those who watch it: one immutable event an op.

An observer says what it needs. One that only wants waits and copies costs nothing at the other
ops; one that wants every op gets storages with versions and the op's signature, which is what a
clock or a value numbering is built on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    import weakref

    from harness.emulator.tensors.op_facts import OpFacts
    from harness.emulator.tensors.stream_book import StreamAction
    from harness.record.sync_kinds import SyncKind

AuditedPhase = Literal["data", "forward", "recompute", "backward", "optimizer"]
CopyDirection = Literal["h2d", "d2h", "d2d"]


class Access(NamedTuple):
    """One tensor that an op reads or writes."""

    storage: int
    """Number of the storage; views of one allocation share it."""
    version: int
    """State of the storage's data: rises with each write. For a write, the state it leaves."""
    layout: int
    """Number of the tensor's (shape, strides, offset, dtype); equal numbers, equal layout."""
    num_bytes: int
    """Bytes of the tensor, not of its storage."""
    parameter: bool = False
    """Whether it is an `nn.Parameter` itself, not a view of one."""


class HostData(NamedTuple):
    """The host side of an upload."""

    storage: int
    """Number of the host storage: the same for as long as it lives, never used again."""
    digest: int
    """Equal where the data is equal; for large data, where storage and version are."""
    floating: bool
    num_dims: int


class Copy(NamedTuple):
    """A copy between host and device, or within the device."""

    direction: CopyDirection
    num_bytes: int
    pinned: bool | None
    """Whether the host side is pinned memory; `None` for a copy within the device."""
    blocking: bool
    host: HostData | None = None
    """What is uploaded; `None` for other copies, and for observers of waits only."""
    host_storage: int | None = None
    """Number of the host storage that a `copy_` reads or writes, as in `HostData`; `None` for
    other copies, and for observers of waits only."""
    made: weakref.ref[Any] | None = None
    """The storage that a copy makes, on the host or the device; `None` for a `copy_` into one that
    was there, and for observers of waits only."""


class Wait(NamedTuple):
    """How an op makes the host wait, by the sync rules."""

    op: str
    kind: SyncKind
    syncs: int
    """Blocking synchronisations in this call; 0 for a hazard that is no wait, such as a
    `non_blocking` copy from pageable memory."""
    doubt: str | None = None
    """How often it may be instead, where the sources leave doubt; see `Rule`."""


class OpEvent(NamedTuple):
    """One op on the emulated device, after it ran."""

    position: int
    """Position among all ops of the device, from 0."""
    op: str
    """Dispatcher name with overload (`aten::add.Tensor`), or the API (`cudaDeviceSynchronize`)."""
    phase: AuditedPhase
    stream: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    """Outputs and arguments written in place. Empty, like `reads`, for observers of waits only."""
    signature: tuple[object, ...]
    """Op, layouts and constants: with equal signatures and `constants`, equal inputs give equal
    values, unless the op is random. Empty for observers of waits only."""
    random: bool
    waits: tuple[Wait, ...]
    copy: Copy | None
    input_lineage: int | None
    """What the op's first argument holds, for an op that waits: equal where the same integer data
    was computed by the same ops from the same data. `None` where there is none."""
    constants: int = 0
    """Equal where the numbers and host tensors among the arguments are equal. 0 for observers of
    waits only."""


class Observer(Protocol):
    """Watches an emulated device. Exceptions raised here reach the user's code: do not raise."""

    @property
    def wants_every_op(self) -> bool:
        """Whether events come for every op, or only for those that wait or copy."""
        ...

    def on_event(self, event: OpEvent) -> None:
        """Called on the thread that ran the op, with the user's frames still on the stack."""
        ...

    def on_stream_action(self, action: StreamAction) -> None:
        """An event was recorded on a stream, or a stream told to wait for one."""
        ...


class Pacer(Protocol):
    """Keeps the time of the device: cheaper than an observer of every op, since it gets no event.

    Called for each op that is no copy between host and device, after it ran and before its waits.
    """

    def __call__(
        self,
        facts: OpFacts,
        signature: tuple[object, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        stream: int,
        /,
    ) -> None:
        """`signature` as in `OpEvent`; equal signatures ask the same of the device."""
        ...


class ClockAnswers(Protocol):
    """What `torch.cuda.Event` and `Stream` ask of a clock."""

    def event_ms(self, event: int) -> float | None:
        """When an event is reached; `None` where it was never recorded."""
        ...

    def event_done(self, event: int) -> bool:
        """Whether an event is reached by now."""
        ...

    def stream_done(self, stream: int) -> bool:
        """Whether a stream is idle by now."""
        ...
