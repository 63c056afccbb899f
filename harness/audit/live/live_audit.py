"""Audit a program while it runs on a GPU: the profiler's trace, read like any other trace.

`LiveAudit` is a context around any code. `audit_live` runs a step twice over: once under the
profiler, once under `SyncRecorder` for the exact lines, so that neither disturbs the other.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from harness.audit.failures import error_text
from harness.audit.live.live_syncs import SyncRecorder
from harness.audit.trace import audit_trace
from harness.boundary.foreign_text import one_line
from harness.errors import UsageError, WorkloadError
from harness.findings.finding_catalogue import with_findings
from harness.record.sync_kinds import SyncKind
from harness.record.trace_details import CallLine, SyncAgreement, TraceDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from harness.record.audit_report import AuditReport, Site


def _activities() -> list[ProfilerActivity]:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return activities


def _profiler() -> profile:
    """Stacks, shapes, and rows for what each sync waited for where this torch offers them."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        config = _ExperimentalConfig(enable_cuda_sync_events=True)
    except (ImportError, TypeError):
        config = None
    return profile(
        activities=_activities(),
        record_shapes=True,
        with_stack=True,
        acc_events=True,
        experimental_config=config,
    )


def require_gpu() -> None:
    """Raise `UsageError` where there is no GPU to audit on."""
    if not torch.cuda.is_available():
        raise UsageError(
            "a live audit needs a CUDA or ROCm GPU and this machine has none; use the emulated "
            "audit, or audit a trace recorded elsewhere"
        )


class LiveAudit:
    """Audit the code inside a `with` block; `report` is there afterwards.

    Call `step()` at the start of each training step to get figures per step. The trace itself is
    kept at `trace_path` where it is given, and deleted otherwise. An exception inside the block
    passes through and leaves `report` at `None`.
    """

    def __init__(self, *, target: str = "with block", trace_path: str | Path | None = None) -> None:
        self.target = target
        self.trace_path = None if trace_path is None else Path(trace_path)
        self.report: AuditReport | None = None
        self._profile: profile | None = None
        self._mark = ExitStack()
        self._number = 0

    def __enter__(self) -> Self:
        self._profile = _profiler()
        self._profile.start()
        return self

    def step(self) -> None:
        """Begin the next step; the one before ends here."""
        self._mark.close()
        self._mark.enter_context(record_function(f"ProfilerStep#{self._number}"))
        self._number += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mark.close()
        recorded, self._profile = self._profile, None
        if recorded is None:
            return
        recorded.stop()
        if error is None:
            self.report = _report_of(recorded, self.target, self.trace_path)


def _report_of(recorded: profile, target: str, keep: Path | None) -> AuditReport:
    """Export the trace to a file and audit it like any other."""
    with tempfile.TemporaryDirectory(prefix="gapless-live-") as folder:
        path = Path(folder) / "trace.json.gz" if keep is None else keep
        try:
            recorded.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as problem:
            raise UsageError(
                f"cannot write the trace to {path} ({problem}); give a folder you can write to and "
                "a name that ends in .json or .json.gz"
            ) from problem
        report = audit_trace(path)
    return msgspec.structs.replace(report, source="live", target=target)


@contextmanager
def _workload(target: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        said = one_line(error_text(error))
        raise WorkloadError(
            f"{target} raised {type(error).__name__}: {said}; mend the step, then audit it again"
        ) from error


def audit_live(
    step: Callable[[], object],
    *,
    target: str,
    num_steps: int = 3,
    num_warmup: int = 2,
    trace_path: str | Path | None = None,
) -> AuditReport:
    """Audit a step on the GPU of this machine: `num_steps` under the profiler, as many recorded.

    Raises `UsageError` without a GPU and `WorkloadError` where the step itself fails.
    """
    require_gpu()
    with _workload(target):
        for _ in range(num_warmup):
            step()
        with LiveAudit(target=target, trace_path=trace_path) as live:
            for _ in range(num_steps):
                live.step()
                step()
        with SyncRecorder() as recorder:
            for _ in range(num_steps):
                step()
    assert live.report is not None
    return with_findings(with_call_lines(live.report, recorder))


def with_call_lines(report: AuditReport, recorder: SyncRecorder) -> AuditReport:
    """Add exact lines to the sites of a live report, and how far the counters agree."""
    lines = recorder.lines()
    details = report.trace or TraceDetails()
    return msgspec.structs.replace(
        report,
        sites=tuple(_at_call_line(site, lines) for site in report.sites),
        trace=msgspec.structs.replace(
            details, call_lines=lines, agreement=_agreement(report, details, recorder)
        ),
    )


def _at_call_line(site: Site, lines: tuple[CallLine, ...]) -> Site:
    """The profiler knows the function only; where one line of it waited, that is the line."""
    if site.file is None:
        return site
    same = {
        (line.line, line.code)
        for line in lines
        if line.function.rsplit(".", 1)[-1] == site.function and line.file.endswith(site.file)
    }
    if len(same) != 1:
        return site
    ((number, code),) = same
    return msgspec.structs.replace(site, line=number, code=code)


def _agreement(report: AuditReport, details: TraceDetails, recorder: SyncRecorder) -> SyncAgreement:
    profiled = sum(cost.count for cost in details.sites)
    callbacks, warned = recorder.num_callbacks, recorder.num_warnings
    remarks = []
    explicit = sum(
        site.count_per_step * (report.steps or 1)
        for site in report.sites
        if site.kind in (SyncKind.EXPLICIT_SYNCHRONIZE, SyncKind.EVENT_SYNCHRONIZE)
    )
    if warned < callbacks and explicit:
        remarks.append("the sync debug mode does not see explicit and event synchronises")
    if profiled > max(callbacks, warned):
        remarks.append(
            "the profiler also sees pageable copies and extensions that wait by themselves"
        )
    if profiled < callbacks:
        remarks.append("some recorded syncs are not in the profiled steps: the steps differ")
    return SyncAgreement(
        profiler=profiled, callbacks=callbacks, warnings=warned, remarks=tuple(remarks)
    )
