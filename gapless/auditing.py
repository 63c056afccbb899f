"""`gapless.audit`: what makes the host wait in a block, in each call of a function, or in a step.

Named apart from the function it holds, because importing a submodule called `audit` would put the
module where `gapless.audit` stands.
"""

from __future__ import annotations

import functools
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, overload

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import pandas as pd

    from harness.audit.emulated.emulated_audit import Boundary, EmulatedAudit, Mode
    from harness.audit.live.live_audit import LiveAudit
    from harness.emulator.tensors.choices import Routing
    from harness.record.audit_report import AuditReport

P = ParamSpec("P")
R = TypeVar("R")

On = Literal["auto", "gpu", "emulated"]


@overload
def audit(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def audit(
    function: None = None,
    /,
    *,
    steps: int | None = None,
    skip: int = 0,
    on: On = "auto",
    gpu: str = "H100",
    mode: Mode = "auto",
    routing: Routing = "uniform",
    seed: int = 0,
) -> Audit: ...


def audit(
    function: Callable[P, R] | None = None,
    /,
    *,
    steps: int | None = None,
    skip: int = 0,
    on: On = "auto",
    gpu: str = "H100",
    mode: Mode = "auto",
    routing: Routing = "uniform",
    seed: int = 0,
) -> Audit | Callable[P, R]:
    """Count, by source line, what makes the host wait for the device.

        with gapless.audit() as a:          @gapless.audit(steps=3)
            train_step(batch)               def train_step(batch): ...
        print(a)                            train_step.audit.report

    On a machine with a GPU the audit is live (`on="gpu"`); elsewhere, and with `on="emulated"`,
    the code runs on a `gpu` that does not exist: `torch.device("cuda")` inside means that one, so
    model and data belong inside, too. `mode` is `values`, `shapes`, or `auto`: real values while
    they are small. In a block, steps end with the optimizer's; a decorated function is one step a
    call. The first `skip` steps are not counted, and after `steps` more counting ends.
    `@gapless.audit` without parentheses counts the first call.
    """
    made = Audit(steps=steps, skip=skip, on=on, gpu=gpu, mode=mode, routing=routing, seed=seed)
    return made if function is None else made(function)


class Audit:
    """One audit: a context manager, a decorator, and afterwards its report."""

    def __init__(
        self,
        *,
        steps: int | None,
        skip: int,
        on: On,
        **settings: Any,
    ) -> None:
        if on not in ("auto", "gpu", "emulated"):
            raise UsageError(f"on={on!r} is unknown; choose auto, gpu or emulated.")
        self._steps, self._skip, self._on = steps, skip, on
        self._settings = settings
        self._emulated: EmulatedAudit | None = None
        self._live: LiveAudit | None = None
        self._decorates = False
        self._report: AuditReport | None = None

    @property
    def report(self) -> AuditReport:
        """What was found; asking for it ends an audit of a decorated function that still waits for
        more calls. Raises `UsageError` inside the block, or before anything ran."""
        if self._report is None and self._decorates:
            self._leave()
        if self._report is None:
            raise UsageError("The report is there after the `with` block, not inside it.")
        return self._report

    def step(self) -> None:
        """Begin the next step here, where no optimizer's step marks it."""
        if self._emulated is not None:
            self._emulated.mark_step()
        elif self._live is not None:
            self._live.step()
        else:
            raise UsageError("step() belongs inside the `with` block of the audit.")

    def to_json(self) -> str:
        """The report as one JSON document."""
        from harness.record.audit_report import to_json

        return to_json(self.report)

    def to_frame(self) -> pd.DataFrame:
        """One row a site, its columns named as in the report."""
        import msgspec
        import pandas as pd

        from harness.record.audit_report import Site
        from harness.tables.audit_text import sorted_sites

        rows = [msgspec.structs.asdict(site) for site in sorted_sites(self.report)]
        return pd.DataFrame(rows, columns=list(Site.__struct_fields__))

    def __str__(self) -> str:
        from harness.tables.audit_text import report_text

        return report_text(self.report, width=shutil.get_terminal_size((110, 24)).columns)

    def __repr__(self) -> str:
        return str(self) if self._report is not None else "<gapless audit without a report yet>"

    def _repr_html_(self) -> str:
        from harness.tables.audit_text import report_html

        return report_html(self.report)

    def __enter__(self) -> Self:
        self._enter("with block", "optimizer")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a step function: each call is one step. The audit is its attribute `audit`.

        The emulated GPU is there from the first call to the end of the last one that is counted.
        """
        steps, calls = self._steps or 1, 0
        self._decorates = True

        @functools.wraps(function)
        def audited(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal calls
            if self._report is not None:
                return function(*args, **kwargs)
            calls += 1
            counted = calls > self._skip
            if not self._runs and (counted or not self._is_live):
                self._enter(function.__qualname__, "explicit")
            try:
                with self._one_call(counted):
                    result = function(*args, **kwargs)
            except BaseException as error:
                self._leave(type(error), error, error.__traceback__)
                raise
            if calls >= self._skip + steps:
                self._leave()
            return result

        audited.audit = self  # type: ignore[attr-defined]  # a function takes attributes
        return audited

    @functools.cached_property
    def _is_live(self) -> bool:
        if self._on == "auto":
            import torch

            return torch.cuda.is_available() and not _emulation_is_active()
        return self._on == "gpu"

    @property
    def _runs(self) -> bool:
        return self._emulated is not None or self._live is not None

    @contextmanager
    def _one_call(self, counted: bool) -> Iterator[None]:
        """One call of the decorated function; what runs between calls is no part of a step."""
        if self._live is not None:
            self._live.step()
        if self._emulated is None:
            yield
            return
        self._emulated.record(counted)
        yield
        self._emulated.mark_step()
        self._emulated.record(False)

    def _enter(self, target: str, boundary: Boundary) -> None:
        self._report = None
        if self._is_live:
            from harness.audit.live.live_audit import LiveAudit, require_gpu

            if _emulation_is_active():
                raise UsageError("This code runs on the emulated GPU; use on='auto' in it.")
            require_gpu()
            self._live = LiveAudit(target=target).__enter__()
            if boundary == "optimizer":
                self._live.step()
            return
        from harness.audit.emulated.emulated_audit import EmulatedAudit

        self._emulated = EmulatedAudit(
            target=target,
            boundary=boundary,
            steps=self._steps,
            skip=self._skip,
            **self._settings,
        ).__enter__()

    def _leave(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        running = self._emulated or self._live
        self._emulated = self._live = None
        if running is not None:
            running.__exit__(kind, error, trace)
            self._report = _with_answers(running.report)


class SyncAuditCallback:
    """For a Hugging Face `Trainer` (`callbacks=[...]`) or Lightning (`Trainer(callbacks=[...])`).

    Audits `steps` optimizer steps on the GPU after the first `skip`, prints the report and keeps it
    as `report`. Neither library is imported: both call methods by name. Without a GPU the model is
    on the CPU by the time a callback runs; use `gapless audit SCRIPT` there.
    """

    def __init__(self, *, steps: int = 3, skip: int = 2) -> None:
        self._steps, self._skip = steps, skip
        self._seen = 0
        self._live: LiveAudit | None = None
        self.report: AuditReport | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return _ignore
        if name in ("setup", "teardown", "state_dict", "load_state_dict"):
            return _ignore
        raise AttributeError(name)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hugging Face: an optimizer step begins."""
        self._begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hugging Face: an optimizer step has ended."""
        self._end()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Both: training has ended, maybe before all steps were seen."""
        self._close()

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Lightning: a batch begins."""
        self._begin()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Lightning: a batch has ended."""
        self._end()

    @property
    def state_key(self) -> str:
        """Lightning: what its checkpoints would call this callback."""
        return type(self).__qualname__

    def _begin(self) -> None:
        import torch

        if self.report is not None or self._seen < self._skip or not torch.cuda.is_available():
            return
        if _emulation_is_active():
            return  # The audit of the whole script counts these steps.
        if self._live is None:
            from harness.audit.live.live_audit import LiveAudit

            self._live = LiveAudit(target="training").__enter__()
        self._live.step()

    def _end(self) -> None:
        self._seen += 1
        if self._seen >= self._skip + self._steps:
            self._close()

    def _close(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        live.__exit__(None, None, None)
        self.report = _with_answers(live.report)
        if self.report is not None:
            from harness.tables.audit_text import report_text

            sys.stderr.write(report_text(self.report) + "\n")


def _with_answers(report: AuditReport | None) -> AuditReport | None:
    from harness.findings.answering import with_answers
    from optimizations.optimization_catalogue import answers

    return None if report is None else with_answers(report, answers())


def _emulation_is_active() -> bool:
    device = sys.modules.get("harness.emulator.device")
    return device is not None and device.active_device() is not None


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Stands for the events of a trainer that an audit does not need."""
