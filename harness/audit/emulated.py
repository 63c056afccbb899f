"""Audits a step on the emulated accelerator.

`audit_callable` runs a step function; `EmulatedAudit` is the `with` block that everything else
(the context manager, decorator and script runner of the front door) is built on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

from harness.audit.attribution import Attribution
from harness.audit.build import build_report
from harness.audit.frames import CodeBook
from harness.audit.tally import Tally
from harness.audit.target import load_target, make_step
from harness.emulator.choices import Choices, Routing
from harness.emulator.device import EmulatedDevice
from harness.emulator.patches import Patches
from harness.errors import GaplessError, UsageError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import torch

    from harness.audit.report import AuditReport
    from harness.emulator.events import Observer

Mode = Literal["auto", "values", "shapes"]
Boundary = Literal["explicit", "optimizer"]


class AuditComplete(BaseException):
    """Raised out of the audited code once all asked steps are recorded; never shown to a user.

    Not an `Exception`, so that a script's own `except Exception` does not swallow it.
    """


class EmulatedAudit:
    """Everything inside the `with` block runs on the emulated GPU and is counted by site.

    Steps end at `mark_step()` (`boundary="explicit"`) or after each step of the optimizer that
    stepped first (`boundary="optimizer"`). The first `skip` steps are not recorded; after `steps`
    more, recording stops, and with `stop=True` `AuditComplete` leaves the block.
    """

    def __init__(
        self,
        *,
        gpu: str = "H100",
        mode: Mode = "auto",
        target: str = "with block",
        boundary: Boundary = "optimizer",
        steps: int | None = None,
        skip: int = 0,
        stop: bool = False,
        routing: Routing = "uniform",
        seed: int = 0,
        user_files: tuple[str, ...] = (),
        observers: Sequence[Observer] = (),
    ) -> None:
        if steps is not None and steps < 1:
            raise UsageError(f"An audit needs at least one step; steps={steps} is none.")
        self.device = EmulatedDevice(
            gpu, shapes_only=mode == "shapes", choices=Choices(seed, routing)
        )
        self.target = target
        self._boundary = boundary
        self._steps = steps
        self._skip = skip
        self._stop = stop
        self._attribution = Attribution(CodeBook(user_files))
        self._tally = Tally(self._attribution)
        self._patches = Patches()
        self._done = 0
        self._recorded = 0
        self._stepping: torch.optim.Optimizer | None = None
        self._open = False
        self._ops_at_boundary = 0
        self._report: AuditReport | None = None
        for observer in (self._tally, *observers):
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

    def note(self, sentence: str) -> None:
        """Add a sentence to the report's notes, once."""
        self.device.note(sentence)

    def mark_step(self) -> None:
        """End a step here."""
        self._done += 1
        if self._tally.recording:
            self._recorded += 1
            self._tally.end_step()
        self._ops_at_boundary = self.device.dispatcher.num_ops
        complete = self._steps is not None and self._recorded >= self._steps
        self._tally.recording = self._done >= self._skip and not complete
        if complete and self._stop:
            raise AuditComplete

    def __enter__(self) -> EmulatedAudit:
        self.device.__enter__()
        try:
            self._attribution.start(self._patches)
            self.device.dispatcher.before_op = self._attribution.before_op
            if self._boundary == "optimizer":
                self.device.phases.on_optimizer_step.append(self._after_optimizer)
            self._tally.recording = self._skip == 0
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
        self._leave()
        self._finish()
        return exc_type is not None and issubclass(exc_type, AuditComplete)

    def _leave(self) -> None:
        self.device.dispatcher.before_op = None
        self._patches.restore()
        self.device.__exit__(None, None, None)

    def _after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if self._stepping is None:
            self._stepping = optimizer
        if optimizer is self._stepping:
            self.mark_step()

    def _finish(self) -> None:
        shapes = self.device.shapes_only
        how = "shapes only" if shapes else "real values"
        notes = list(self.device.notes)
        if shapes:
            notes.append(self.device.choices.describe())
        self._report = build_report(
            self._tally,
            target=self.target,
            device=f"emulated {self.device.gpu.key} ({how})",
            # A block without an optimizer step is one step as a whole.
            steps=max(self._recorded, 1),
            shapes_only=shapes,
            notes=notes,
        )


def audit_callable(
    step: Callable[[], Any],
    *,
    steps: int = 1,
    warmup: int = 1,
    gpu: str = "H100",
    mode: Mode = "auto",
    target: str | None = None,
    routing: Routing = "uniform",
    seed: int = 0,
    build: bool = False,
    observers: Sequence[Observer] = (),
) -> AuditReport:
    """Audit `steps` calls of `step`, after `warmup` calls that are not counted.

    `build=True` means `step` makes the step (on the emulated device) when called, if it returns a
    callable, and is the step itself otherwise. Raises `WorkloadError` where the step raises.
    """
    audit = EmulatedAudit(
        gpu=gpu,
        mode=mode,
        target=target or str(getattr(step, "__qualname__", step)),
        boundary="explicit",
        steps=steps,
        skip=warmup,
        routing=routing,
        seed=seed,
        observers=observers,
    )
    with _as_workload_error(audit.target), audit:
        audit._tally.recording = False
        run = make_step(step) if build else step
        for _ in range(warmup):
            run()
            audit.mark_step()
        audit._tally.recording = True
        for _ in range(steps):
            run()
            audit.mark_step()
    return audit.report


def audit_target(
    target: str,
    *,
    steps: int = 1,
    warmup: int = 1,
    gpu: str = "H100",
    mode: Mode = "auto",
    routing: Routing = "uniform",
    seed: int = 0,
) -> AuditReport:
    """Audit `file.py:callable` or `package.module:callable`; see `load_target` for the contract."""
    return audit_callable(
        load_target(target, device="cuda"),
        steps=steps,
        warmup=warmup,
        gpu=gpu,
        mode=mode,
        target=target,
        routing=routing,
        seed=seed,
        build=True,
    )


@contextlib.contextmanager
def _as_workload_error(target: str) -> Any:
    try:
        yield
    except GaplessError:
        raise
    except Exception as error:
        raise WorkloadError(
            f"The step of {target} raised {type(error).__name__}: {error}"
        ) from error
