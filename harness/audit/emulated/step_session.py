"""Watches steps on an emulated device: the one set-up of observers, patches and clock.

Where a step begins and ends, and which steps count, is decided by those who use it: an audit of a
block, a function or a script (`emulated_audit`), and a bench that looks at one step of each arm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.audit.emulated.attribution import Attribution
from harness.audit.emulated.intended import FirstMoves
from harness.audit.emulated.redundancy import Redundancy
from harness.audit.emulated.report_building import build_report
from harness.audit.emulated.tally import Tally
from harness.audit.emulated.unread_copies import UnreadCopies
from harness.audit.emulated.value_numbers import ValueNumbers
from harness.audit.frames import Code, CodeClassifier
from harness.clock.clock_figures import figures_of
from harness.emulator.tensors.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from harness.audit.emulated.site_counts import Counts
    from harness.audit.emulated.value_numbers import ForwardWork
    from harness.clock.clock_figures import ClockFigures
    from harness.clock.queue_timeline import Recording
    from harness.emulator.device import EmulatedDevice
    from harness.emulator.device_clock import Action, DeviceClock
    from harness.record.audit_report import AuditReport


@dataclass(frozen=True)
class StepTime:
    """One step on the virtual clock."""

    recording: Recording
    figures: ClockFigures
    tape: list[Action]
    """What happened, for another clock to replay."""


@dataclass(frozen=True)
class WatchedStep:
    """What was seen since watching began, or since the step before."""

    counts: Counts
    """Syncs and copies by place, with what they cost."""
    forward: list[ForwardWork]
    """Its numbered work; empty without redundancy."""
    time: StepTime | None
    """`None` where nothing was watched."""


class StepSession:
    """A `with` block in which steps on `device` can be watched; enter it as often as needed.

    Between `begin` and `pause` syncs are counted by place and `clock` is recorded; `take` ends a
    step. What was watched and not taken when the block ends is lost. `user_files` count as the
    user's wherever they lie; `redundancy=False` numbers no values, which is faster.
    """

    def __init__(
        self,
        device: EmulatedDevice,
        clock: DeviceClock,
        *,
        user_files: tuple[str, ...] = (),
        redundancy: bool = True,
    ) -> None:
        self.classifier = CodeClassifier(user_files)
        # The line that calls `model.cpu()` copies no tensor of its own.
        self.classifier.mark(torch.nn.Module._apply.__code__, Code.LIBRARY)
        self.attribution = Attribution(self.classifier)
        self._device = device
        self._clock = clock
        self._patches = Patches()
        self._unread = UnreadCopies()
        self._tally = Tally(self.attribution, clock, self._unread)
        self._values = ValueNumbers(self.attribution) if redundancy else None
        device.add_observer(self._tally)
        if self._values is not None:
            device.add_observer(self._values)
        device.add_observer(self._unread)

    def __enter__(self) -> Self:
        self.attribution.start(self._patches)
        self._patches.wrap(torch.nn.Module, "_apply", FirstMoves().around)
        self._unread.start(self._patches)
        self._device.dispatcher.before_op = self.attribution.before_op
        self._device.dispatcher.host_reader = self._unread.host_read
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.pause()
        self._device.dispatcher.before_op = None
        self._device.dispatcher.host_reader = None
        self._patches.restore()

    @property
    def is_watching(self) -> bool:
        """Whether what happens now is counted."""
        return self._tally.recording

    @property
    def counts(self) -> Counts:
        """What was counted since the last step ended; the clock's costs are not in it yet."""
        return self._tally.counts

    def begin(self) -> None:
        """Watch from here on."""
        if self.is_watching:
            return
        if self._values is not None:
            self._values.discard()
        self._tally.recording = True
        self._clock.start_recording(keep_tape=True)

    def pause(self) -> None:
        """Stop watching; the step that has begun is no part of the clock's figures."""
        if self.is_watching:
            self._tally.recording = False
            self._clock.stop_recording()

    def take(self) -> WatchedStep:
        """End a step here; the next one begins where this one is watched."""
        counts = self._tally.take()
        forward = self._values.take() if self._values is not None else []
        if not self.is_watching:
            return WatchedStep(counts, forward, None)
        tape = self._clock.tape or []
        recording = self._clock.stop_recording()
        figures = figures_of(recording)
        counts.set_costs(figures.waits)
        self._clock.start_recording(keep_tape=True)
        return WatchedStep(counts, forward, StepTime(recording, figures, tape))

    def new_redundancy(self) -> Redundancy:
        """Adds up what several steps computed again."""
        return Redundancy(self.attribution.module_path)

    def report(
        self, counts: Counts, *, target: str, steps: int, notes: Sequence[str] = (), **more: Any
    ) -> AuditReport:
        """The report of `steps` steps in which `counts` was counted, with the device's notes."""
        device = self._device
        shapes = device.shapes_only
        return build_report(
            counts,
            target=target,
            device=f"emulated {device.gpu.key} ({'shapes only' if shapes else 'real values'})",
            steps=steps,
            shapes_only=shapes,
            notes=[*device.notes, *([device.choices.describe()] if shapes else []), *notes],
            **more,
        )
