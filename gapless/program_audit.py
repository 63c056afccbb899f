"""Audits what a user names on the command line: a callable or a script, live or emulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.audit.process_state import process_state_kept
from harness.errors import UsageError
from harness.findings.answering import with_answers
from optimizations.optimization_catalogue import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.audit_report import AuditReport

LIVE_STEPS, LIVE_WARMUP = 3, 2


def is_script(word: str) -> bool:
    """Whether a target names a whole script rather than something to call."""
    return word.endswith(".py") or (":" not in word and Path(word).is_file())


def should_be_live(gpu: str | None) -> bool:
    """Whether to use this machine's GPU: there is one, and none was named to emulate."""
    import torch

    return gpu is None and torch.cuda.is_available()


def audit_program(
    words: Sequence[str], *, steps: int | None, skip: int | None, **settings: Any
) -> AuditReport:
    """Audit on the emulated GPU. A script is counted to its end where `steps` is `None`."""
    with process_state_kept():
        return _audit_program(words, steps, skip, settings)


def _audit_program(
    words: Sequence[str], steps: int | None, skip: int | None, settings: dict[str, Any]
) -> AuditReport:
    target, *arguments = words
    if is_script(target):
        from harness.audit.emulated.emulated_script import audit_script

        report = audit_script(target, arguments, steps=steps, skip=skip, **settings)
        return with_answers(report, answers())
    from harness.audit.emulated.emulated_audit import audit_target

    _no_arguments(target, arguments)
    report = audit_target(
        target,
        steps=1 if steps is None else steps,
        warmup=1 if skip is None else skip,
        **settings,
    )
    return with_answers(report, answers())


def audit_on_gpu(
    words: Sequence[str], *, steps: int | None, skip: int | None, tensorboard: str | None
) -> AuditReport:
    """Audit on this machine's GPU, under the profiler; `tensorboard` also keeps the trace there."""
    import tempfile

    target, *arguments = words
    with process_state_kept(), tempfile.TemporaryDirectory(prefix="gapless-") as folder:
        trace = None if tensorboard is None else Path(folder) / "trace.json.gz"
        if is_script(target):
            from harness.audit.live.live_script import audit_script_live

            report = audit_script_live(
                target,
                arguments,
                steps=LIVE_STEPS if steps is None else steps,
                skip=LIVE_WARMUP if skip is None else skip,
                trace_path=trace,
            )
        else:
            from harness.audit.live.live_audit import audit_live
            from harness.audit.target import load_target, make_step

            _no_arguments(target, arguments)
            report = audit_live(
                make_step(load_target(target, device="cuda")),
                target=target,
                num_steps=LIVE_STEPS if steps is None else steps,
                num_warmup=LIVE_WARMUP if skip is None else skip,
                trace_path=trace,
            )
        if tensorboard is not None and trace is not None:
            from harness.audit.tensorboard import save_for_tensorboard

            save_for_tensorboard(trace, tensorboard)
    return with_answers(report, answers())


def _no_arguments(target: str, arguments: Sequence[str]) -> None:
    if arguments:
        raise UsageError(
            f"{target} is called without arguments, but {arguments[0]!r} follows it; only a script "
            "takes its own, after --."
        )
