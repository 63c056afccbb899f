"""Redundant work on equal inputs, found by value numbering.

The number of a value is the hash of the op that made it, the numbers of what the op read, and its
constants. Equal numbers mean equal work. What is numbered is the state of a storage: views share
it, a write in place makes a new state out of the old one, random ops and parameters are numbers of
their own, and host data that is uploaded counts by its content.

Compared is one forward pass, from the end of one backward to the start of the next, with the
recompute of its checkpoints. Only work that needs no learned data counts there: checkpointing means
to run a layer again, but not to count its documents again. Work on buffers and constants alone is
compared from step to step as well.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from torch.nn import RNNBase

from harness.emulator.tensors.tensor import storage_number
from harness.record.sync_kinds import SyncKind

if TYPE_CHECKING:
    from torch import nn

    from harness.audit.emulated.attribution import Attribution
    from harness.audit.frames import Point
    from harness.emulator.tensors.op_events import Access, OpEvent
    from harness.emulator.tensors.stream_book import StreamAction

LEARNED, DATA = 1, 2
"""What a value derives from: parameters, random or large floating data; anything but constants."""

_FILLS = frozenset(
    {
        "aten::arange", "aten::fill_", "aten::full", "aten::full_like", "aten::new_full",
        "aten::new_ones", "aten::new_zeros", "aten::ones", "aten::ones_like", "aten::scalar_tensor",
        "aten::zero_", "aten::zeros", "aten::zeros_like",
    }
)  # fmt: skip
"""Cheap beginnings of a chain: reported with the work that needs them, never alone."""
_ALLOCATIONS = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"}
)
"""No kernel runs."""
_SETTING_UP = frozenset({"__init__", "reset_parameters", "_init_weights"})
"""Functions that make a model: each layer makes its own, once."""
_RANDOM_INTEGERS = ("aten::randint", "aten::randperm", "aten::random")
_UNNUMBERED = frozenset({"backward", "optimizer"})
_MOST_STATES = 1 << 20
"""Storages remembered from step to step; beyond that, the ones long not read go."""


class State(NamedTuple):
    """What a storage holds."""

    version: int
    number: int
    lineage: int
    step: int
    """Step that wrote it. Constants of an earlier step are data, unless a module's buffer."""


class Occurrence(NamedTuple):
    """One time that a value was computed."""

    point: Point | None
    module_call: int
    module: nn.Module | None
    syncs: int
    host_storage: int | None
    recompute: bool


class Work:
    """One number, and each time it was computed in one forward pass."""

    __slots__ = ("is_fill", "lineage", "num_bytes", "occurrences", "op", "operands", "results")

    def __init__(
        self,
        op: str,
        operands: tuple[int, ...],
        results: tuple[int, ...],
        num_bytes: int,
        lineage: int,
    ) -> None:
        self.op = op
        self.operands = operands
        self.results = results
        self.num_bytes = num_bytes
        self.lineage = lineage
        self.is_fill = op in _FILLS
        self.occurrences: list[Occurrence] = []

    @property
    def is_upload(self) -> bool:
        """Whether it copies host data to the device."""
        return self.occurrences[0].host_storage is not None


class ForwardWork(NamedTuple):
    """All numbered work of one forward pass and its recompute."""

    works: dict[int, Work]
    known_hosts: frozenset[int]
    """Host storages that an earlier step uploaded."""
    known_constants: frozenset[int]
    """Numbers of work on constants alone that an earlier step did."""


class ValueNumbers:
    """An observer that numbers values. `take` gives the forward passes since the last call."""

    wants_every_op = True

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._states: dict[int, State] = {}
        self._fresh = itertools.count()
        self._works: dict[int, Work] = {}
        self._passes: list[ForwardWork] = []
        self._after_backward = False
        self._step = 0
        self._hosts: set[int] = set()
        self._new_hosts: set[int] = set()
        self._constants: set[int] = set()
        self._new_constants: set[int] = set()

    def on_stream_action(self, action: StreamAction) -> None:
        """What a stream does computes nothing."""

    def on_event(self, event: OpEvent) -> None:
        """Give what the op computed its number."""
        if event.phase in _UNNUMBERED:
            # Gradients and updates are new data; what they wrote in place shows by its version.
            self._after_backward = True
            return
        if not event.reads and not event.writes:
            return  # an API call, such as a synchronise
        states = self._states
        reads = event.reads
        for access in reads:
            if access.parameter:
                # Equal values of two parameters are chance: they are trained apart.
                number = hash(("parameter", access.storage, access.version))
                states[access.storage] = State(access.version, number, LEARNED | DATA, self._step)
        written = [
            access
            for access in event.writes
            if (state := states.get(access.storage)) is None or state.version != access.version
        ]
        if not written and not event.waits:
            return  # a view
        operands = tuple([self._state(access) for access in reads])
        number, lineage = self._number(event, operands)
        for position, access in enumerate(written):
            before = states.get(access.storage)
            after = hash((number, position, before and before.number, access.layout))
            states[access.storage] = State(
                access.version, after, lineage | (before.lineage if before else 0), self._step
            )
        self._remember(event, number, lineage, operands, written)

    def take(self) -> list[ForwardWork]:
        """The forward passes since the last call; a step ends here."""
        self._end_pass()
        self._step += 1
        passes, self._passes = self._passes, []
        self._hosts |= self._new_hosts
        self._constants = self._new_constants
        self._new_hosts, self._new_constants = set(), set()
        if len(self._states) > _MOST_STATES:
            oldest = self._step - 2
            self._states = {n: state for n, state in self._states.items() if state.step >= oldest}
        return passes

    def discard(self) -> None:
        """Compare nothing with what was computed before now, such as to build the model."""
        self._works = {}
        self._passes = []
        self._step += 1

    # ---- numbers

    def _state(self, access: Access) -> State:
        state = self._states.get(access.storage)
        if state is None:
            number = hash(("unseen", access.storage, access.version))
            state = self._states[access.storage] = State(
                access.version, number, LEARNED | DATA, self._step
            )
        elif state.version != access.version:
            number = hash(("written unseen", access.storage, access.version))
            state = self._states[access.storage] = State(
                access.version, number, LEARNED | DATA, self._step
            )
        if not state.lineage & LEARNED and (state.lineage or state.step != self._step):
            lineage = 0 if self._is_buffer(access.storage) else DATA
            state = state._replace(lineage=lineage, step=self._step)
            self._states[access.storage] = state
        return state

    def _is_buffer(self, storage: int) -> bool:
        module = self._attribution.module
        return module is not None and any(
            storage_number(buffer) == storage for buffer in module.buffers(recurse=False)
        )

    def _number(self, event: OpEvent, operands: tuple[State, ...]) -> tuple[int, int]:
        lineage = 0
        for state in operands:
            lineage |= state.lineage
        if event.random:
            integers = event.op.startswith(_RANDOM_INTEGERS)
            return hash(("random", next(self._fresh))), lineage | (
                DATA if integers else LEARNED | DATA
            )
        host = event.copy.host if event.copy is not None else None
        if host is not None:
            learned = LEARNED if host.floating and host.num_dims > 1 else 0
            return hash(("upload", host.digest, event.signature)), DATA | learned
        inputs = tuple(
            [
                (state.number, access.layout)
                for state, access in zip(operands, event.reads, strict=True)
            ]
        )
        return hash((event.op, event.signature, event.constants, inputs)), lineage

    # ---- what was computed

    def _remember(
        self,
        event: OpEvent,
        number: int,
        lineage: int,
        operands: tuple[State, ...],
        written: list[Access],
    ) -> None:
        recompute = event.phase == "recompute"
        if event.phase == "data" or (recompute and lineage & LEARNED):
            return
        if isinstance(self._attribution.module, RNNBase):
            return  # one kernel of cuDNN on a GPU, whose parts nobody can compute once
        if self._after_backward and not recompute:
            self._end_pass()
        op = event.op.partition(".")[0]
        if op in _ALLOCATIONS or any(wait.kind == SyncKind.PRINT_TENSOR for wait in event.waits):
            return
        point = self._attribution.nearest()
        if point is not None and point.code.co_name in _SETTING_UP:
            return
        host = event.copy.host if event.copy is not None else None
        if host is not None:
            self._new_hosts.add(host.storage)
        if not lineage:
            self._new_constants.add(number)
        work = self._works.get(number)
        if work is None:
            if recompute:
                return
            work = self._works[number] = Work(
                op,
                tuple([state.number for state in operands]),
                tuple([self._states[access.storage].number for access in written]),
                sum(access.num_bytes for access in written),
                lineage,
            )
        attribution = self._attribution
        work.occurrences.append(
            Occurrence(
                point,
                attribution.module_call,
                attribution.module,
                sum(wait.syncs for wait in event.waits),
                None if host is None else host.storage,
                recompute,
            )
        )

    def _end_pass(self) -> None:
        self._after_backward = False
        if self._works:
            self._passes.append(
                ForwardWork(self._works, frozenset(self._hosts), frozenset(self._constants))
            )
            self._works = {}
