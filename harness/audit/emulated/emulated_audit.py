"""Audits a step on the emulated accelerator.

`audit_callable` runs a step function; `EmulatedAudit` is the `with` block that everything else
(the context manager, decorator and script runner in `gapless`) is built on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import torch

from harness.audit.emulated.audit_clock import ClockOptions, ModelledSteps, race_rows
from harness.audit.emulated.site_counts import Counts
from harness.audit.emulated.step_session import StepSession
from harness.audit.failures import as_workload_error
from harness.audit.main_program import AuditComplete
from harness.audit.target import load_target, make_step
from harness.clock.calibration import costs_for
from harness.clock.gpus import find_gpu
from harness.emulator.device import EmulatedDevice
from harness.emulator.device_clock import DeviceClock
from harness.emulator.races import RaceDetector
from harness.emulator.tensors.capacity import ValuesLimit
from harness.emulator.tensors.choices import Choices, Routing
from harness.emulator.tensors.patches import Patches
from harness.errors import UsageError
from harness.findings.finding_catalogue import with_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from harness.audit.emulated.step_session import WatchedStep
    from harness.emulator.tensors.op_events import Observer
    from harness.record.audit_report import AuditReport

Mode = Literal["auto", "values", "shapes"]
Boundary = Literal["explicit", "optimizer", "script"]

_NOTHING_RAN = (
    "Nothing ran on the emulated GPU: the step works on CPU tensors, which need no sync; build "
    "the model inside the audit with device='cuda', or move it and its inputs there."
)


class EmulatedAudit:
    """Everything inside the `with` block runs on the emulated GPU and is counted by site.

    Steps end at `mark_step()` (`boundary="explicit"`) or after each step of the optimizer that
    stepped first (`boundary="optimizer"`). `boundary="script"` is the latter for a whole script:
    what comes before the first step, with that step, and what comes after the last one are no
    training, and are left out where there are more steps than that.

    The first `skip` steps are not recorded; after `steps` more, recording stops, and with
    `stop=True` `AuditComplete` leaves the block. `mode="auto"` computes real values as long as
    they are small, then shapes only.
    """

    def __init__(
        self,
        *,
        gpu: str = "H100",
        mode: Mode = "auto",
        target: str = "with block",
        boundary: Boundary = "optimizer",
        steps: int | None = None,
        skip: int | None = None,
        stop: bool = False,
        routing: Routing = "uniform",
        seed: int = 0,
        user_files: tuple[str, ...] = (),
        observers: Sequence[Observer] = (),
        redundancy: bool = True,
        clock: ClockOptions | None = None,
    ) -> None:
        if steps is not None and steps < 1:
            raise UsageError(
                f"An audit needs at least one step; give steps=1 or more, not {steps}."
            )
        if skip is not None and skip < 0:
            raise UsageError(f"An audit cannot skip {skip} steps; give skip=0 or more.")
        self._clock_options = clock or ClockOptions()
        self._modelled = ModelledSteps(find_gpu(gpu))
        device_clock = DeviceClock(costs_for(self._modelled.gpu))
        self.device = EmulatedDevice(
            gpu,
            shapes_only=mode == "shapes",
            values_limit=ValuesLimit.for_mode(mode),
            choices=Choices(seed, routing),
            clock=device_clock,
        )
        self._session = StepSession(
            self.device, device_clock, user_files=user_files, redundancy=redundancy
        )
        self.target = target
        self.classifier = self._session.classifier
        self._boundary = boundary
        self._steps = steps
        self._skip = skip if skip is not None else int(boundary == "script")
        self._keeps_skipped = skip is None and boundary == "script"
        self._stop = stop
        self._counts = Counts()
        self._skipped = Counts()
        self._patches = Patches()
        self._done = 0
        self._recorded = 0
        self._optimizer_steps = 0
        self._stepping: torch.optim.Optimizer | None = None
        self._report: AuditReport | None = None
        self._redundancy = self._session.new_redundancy()
        self._races = (
            RaceDetector(self.device.layouts, self._session.attribution.nearest)
            if self._clock_options.races
            else None
        )
        racing = () if self._races is None else (self._races,)
        for observer in (*racing, *observers):
            self.device.add_observer(observer)

    @property
    def report(self) -> AuditReport:
        """What was found. Raises `UsageError` before the block has ended."""
        if self._report is None:
            raise UsageError("The report is there after the `with` block, not inside it.")
        return self._report

    @property
    def num_recorded_steps(self) -> int:
        """Steps recorded so far."""
        return self._recorded

    @property
    def num_ops(self) -> int:
        """Ops that ran on the emulated device so far."""
        return self.device.dispatcher.num_ops

    @property
    def num_syncs(self) -> int:
        """Syncs counted so far in all, intended ones left out."""
        return self._counts.num_syncs + self._session.counts.num_syncs

    def report_so_far(self) -> AuditReport:
        """What was found so far, redundant work left out; for use inside the block."""
        counts = Counts()
        counts.add(self._counts)
        counts.add(self._session.counts)
        return self._build(counts)

    def note(self, sentence: str) -> None:
        """Add a sentence to the report's notes, once."""
        self.device.note(sentence)

    def record(self, recording: bool) -> None:
        """Start or stop counting here; a step on the clock starts with the counting."""
        if recording:
            self._session.begin()
        else:
            self._session.pause()

    def mark_step(self) -> None:
        """End a step here."""
        recording = self._session.is_watching
        step = self._session.take()
        if self._done >= self._skip:
            self._modelled.keep(step.time)
        self._done += 1
        if self._done <= self._skip:
            self._skipped.add(step.counts)
        elif recording:
            self._recorded += 1
            self._counts.add(step.counts)
            self._redundancy.add(step.forward)
        complete = self._steps is not None and self._recorded >= self._steps
        self.record((self._done >= self._skip or self._keeps_skipped) and not complete)
        if complete and self._stop:
            raise AuditComplete

    def run_steps(self, step: Callable[[], Any]) -> None:
        """Call `step` as often as this audit asks for, the steps that it skips first.

        What was done in the block before, such as to make the model, does not count.
        """
        self.record(self._skip == 0)
        for _ in range(self._skip + (self._steps or 1)):
            returned = step()
            self.mark_step()  # what the step returns is for its caller, who may read it
            del returned
        self.record(False)

    def __enter__(self) -> EmulatedAudit:
        self.device.__enter__()
        try:
            self._session.__enter__()
            if self._boundary != "explicit":
                self.device.phases.on_optimizer_step.append(self._after_optimizer)
                self._patches.wrap(torch.amp.GradScaler, "step", self._scaled_step)
            self.record(self._skip == 0 or self._keeps_skipped)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        rest = self._session.take()
        self._leave()
        self._finish(rest)
        return exc_type is not None and issubclass(exc_type, AuditComplete)

    def _leave(self) -> None:
        self._session.__exit__(None, None, None)
        self._patches.restore()
        self.device.__exit__(None, None, None)

    def _scaled_step(
        self,
        original: Callable[..., Any],
        scaler: Any,
        optimizer: torch.optim.Optimizer,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """A scaler skips the optimizer where gradients overflow; the step ends all the same."""
        before = self._optimizer_steps
        result = original(scaler, optimizer, *args, **kwargs)
        if self._optimizer_steps == before:
            self._after_optimizer(optimizer)
        return result

    def _after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer_steps += 1
        if self._stepping is None:
            self._stepping = optimizer
        if optimizer is self._stepping:
            self.mark_step()

    def _finish(self, rest: WatchedStep) -> None:
        if not self._recorded:
            self._modelled.keep(rest.time)
            self._redundancy.add(rest.forward)
        if self._boundary != "script":
            # What follows the optimizer's step belongs to it, such as reading the loss.
            self._counts.add(rest.counts)
        elif not self._recorded:
            self._counts.add(self._skipped)
            self._counts.add(rest.counts)
            self.note(
                "The script took no step after its first, so its set-up is counted as well."
                if self._done
                else "The script took no optimizer step; the figures are for the whole of it."
            )
        steps = max(self._recorded, 1)
        report = self._build(
            self._counts,
            redundant_groups=self._redundancy.groups(steps),
            repeated_across_steps=self._redundancy.groups_across_steps(steps),
            timeline=self._modelled.timeline(),
            modelled=self._modelled.modelled(
                self._counts, self._clock_options, self.device.memory.peak_bytes
            ),
            races=() if self._races is None else race_rows(self._races.races),
        )
        if self._clock_options.timeline is not None:
            self._modelled.write(self._clock_options.timeline)
        self._report = with_findings(report)

    def _build(self, counts: Counts, **more: Any) -> AuditReport:
        # A block without an optimizer step is one step as a whole.
        steps = max(self._recorded, 1)
        return self._session.report(
            counts, target=self.target, steps=steps, notes=self._notes(), **more
        )

    def _notes(self) -> list[str]:
        device = self.device
        notes = [
            f"How often {op.removeprefix('aten::')} waits is in doubt: {doubt}."
            for op, doubt in device.observers.doubts.items()
        ]
        if not device.dispatcher.num_ops:
            notes.append(_NOTHING_RAN)
        peak, capacity = device.memory.peak_bytes, device.gpu.memory_bytes
        if peak > capacity:
            notes.append(
                f"The step holds up to {peak / 1e9:.0f} GB, more than the {capacity / 1e9:.0f} GB "
                f"of one {device.gpu.key}."
            )
        return notes


class AuditSettings(TypedDict, total=False):
    """What an audit of any kind of target takes; see `EmulatedAudit`."""

    gpu: str
    mode: Mode
    routing: Routing
    seed: int
    clock: ClockOptions | None


def audit_callable(
    step: Callable[[], Any],
    *,
    steps: int = 1,
    warmup: int = 1,
    target: str | None = None,
    build: bool = False,
    observers: Sequence[Observer] = (),
    **settings: Unpack[AuditSettings],
) -> AuditReport:
    """Audit `steps` calls of `step`, after `warmup` calls that are not counted.

    `build=True` means `step` makes the step (on the emulated device) when called, if it returns a
    callable, and is the step itself otherwise. Raises `WorkloadError` where the step raises.
    """
    audit = EmulatedAudit(
        target=target or str(getattr(step, "__qualname__", step)),
        boundary="explicit",
        steps=steps,
        skip=warmup,
        observers=observers,
        **settings,
    )
    with as_workload_error(f"The step of {audit.target}", audit.classifier), audit:
        audit.record(False)
        audit.run_steps(make_step(step) if build else step)
    return audit.report


def audit_target(
    target: str, *, steps: int = 1, warmup: int = 1, **settings: Unpack[AuditSettings]
) -> AuditReport:
    """Audit `file.py:callable` or `package.module:callable`; see `load_target` for the contract."""

    def build() -> Any:
        # Loaded inside the audit, since a module may move its model to the GPU on import.
        return make_step(load_target(target, device="cuda"))

    return audit_callable(build, steps=steps, warmup=warmup, target=target, build=True, **settings)
