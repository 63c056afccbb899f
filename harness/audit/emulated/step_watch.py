"""Explains the waits of single steps on an emulated device that already runs, as in a bench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.audit.emulated.attribution import Attribution
from harness.audit.emulated.audit_clock import timeline_of
from harness.audit.emulated.redundancy import Redundancy
from harness.audit.emulated.report_building import build_report
from harness.audit.emulated.site_counts import Counts
from harness.audit.emulated.tally import Tally
from harness.audit.emulated.value_numbers import ValueNumbers
from harness.audit.frames import CodeBook
from harness.clock.exposed_time import figures_of
from harness.emulator.tensors.patches import Patches
from harness.findings.finding_catalogue import with_findings

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from harness.audit.emulated.value_numbers import ForwardWork
    from harness.clock.exposed_time import ClockFigures
    from harness.clock.queue_timeline import Recording
    from harness.emulator.device import EmulatedDevice
    from harness.emulator.device_clock import DeviceClock
    from harness.record.audit_report import AuditReport


class StepWatch:
    """A `with` block around one step: what it waited for, by site, and its virtual time.

    Enter it as often as there are steps to look at; between two of them it counts nothing. It
    listens to the device until the device ends.
    """

    def __init__(self, device: EmulatedDevice, clock: DeviceClock) -> None:
        self._device = device
        self._clock = clock
        self._patches = Patches()
        self._attribution = Attribution(CodeBook(()))
        self._tally = Tally(self._attribution, clock)
        self._values = ValueNumbers(self._attribution)
        self._counts = Counts()
        self._forward: list[ForwardWork] = []
        self._recording: Recording | None = None
        self._figures: ClockFigures | None = None
        for observer in (self._tally, self._values):
            device.add_observer(observer)

    def __enter__(self) -> Self:
        self._attribution.start(self._patches)
        self._device.dispatcher.before_op = self._attribution.before_op
        self._values.discard()
        self._tally.recording = True
        self._clock.start_recording()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._recording = self._clock.stop_recording()
        self._figures = figures_of(self._recording)
        self._tally.recording = False
        self._device.dispatcher.before_op = None
        self._patches.restore()
        self._counts = self._tally.take()
        self._counts.set_costs(self._figures.waits)
        self._forward = self._values.take()

    @property
    def recording(self) -> Recording:
        """The last step on the clock. Raises `RuntimeError` before there is one."""
        if self._recording is None:
            raise RuntimeError("no step was watched")
        return self._recording

    @property
    def figures(self) -> ClockFigures:
        """The last step in figures. Raises `RuntimeError` before there is one."""
        if self._figures is None:
            raise RuntimeError("no step was watched")
        return self._figures

    def report(self, target: str) -> AuditReport:
        """The last step's sites with their modelled costs. Raises `RuntimeError` before one."""
        figures = self.figures
        redundancy = Redundancy(self._attribution.module_path)
        redundancy.add(self._forward)
        device = self._device
        shapes = device.shapes_only
        return with_findings(
            build_report(
                self._counts,
                target=target,
                device=f"emulated {device.gpu.key} ({'shapes only' if shapes else 'real values'})",
                steps=1,
                shapes_only=shapes,
                notes=device.notes,
                redundant_groups=redundancy.groups(1),
                timeline=timeline_of([figures]),
            )
        )
