"""Runs a training script whole on a GPU, and profiles some of its optimizer steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from harness.audit.failures import as_workload_error
from harness.audit.frames import CodeClassifier
from harness.audit.live.live_audit import LiveAudit, require_gpu
from harness.audit.main_program import AuditComplete, run_as_main
from harness.errors import UsageError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from harness.record.audit_report import AuditReport


class _Steps:
    """Opens the profiler after `skip` optimizer steps and leaves the script after `steps` more."""

    def __init__(self, live: LiveAudit, steps: int, skip: int) -> None:
        self.live = live
        self.recording = False
        self._left = steps
        self._skip = skip
        self._stepping: object = None
        if skip == 0:
            self._begin()

    def after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._stepping is None:
            self._stepping = optimizer
        if optimizer is not self._stepping:
            return
        if self._skip > 0:
            self._skip -= 1
            if self._skip == 0:
                self._begin()
            return
        self._left -= 1
        if self._left == 0:
            raise AuditComplete
        self.live.step()

    def _begin(self) -> None:
        self.live.__enter__()
        self.recording = True
        self.live.step()


def audit_script_live(
    script: str,
    arguments: Sequence[str] = (),
    *,
    steps: int,
    skip: int,
    trace_path: str | Path | None = None,
) -> AuditReport:
    """Audit `steps` optimizer steps of a script on this machine's GPU, after the first `skip`.

    Raises `UsageError` where there is no GPU or no script, and `WorkloadError` where the script
    fails or ends before a step was profiled.
    """
    require_gpu()
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"There is no script {script}; check the path.")
    live = LiveAudit(target=script, trace_path=trace_path)
    counter = _Steps(live, steps, skip)
    hook = register_optimizer_step_post_hook(counter.after)
    try:
        with as_workload_error(script, CodeClassifier((str(path),))):
            run_as_main(path, arguments)
    except AuditComplete:
        pass
    finally:
        hook.remove()
        if counter.recording:
            live.__exit__(None, None, None)
    if live.report is None:
        raise WorkloadError(
            f"{script} ended after fewer than {skip + 1} optimizer steps; give a smaller --skip."
        )
    return live.report
