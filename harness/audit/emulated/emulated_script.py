"""Runs a training script whole, as `python SCRIPT ARGS` would, on the emulated GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.audit.failures import as_workload_error
from harness.audit.main_program import run_as_main
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.emulated.emulated_audit import AuditSettings
    from harness.record.audit_report import AuditReport


def audit_script(
    script: str,
    arguments: Sequence[str] = (),
    *,
    steps: int | None = None,
    skip: int | None = None,
    **settings: Unpack[AuditSettings],
) -> AuditReport:
    """Audit the optimizer steps of a script.

    The script sees `sys.argv`, `__main__` and `sys.path` as Python would set them. After `skip`
    and `steps` more optimizer steps it is stopped; without `steps` it runs to its
    end. Without `skip` the first step, with the set-up before it, is left out where others follow.
    `settings` are those of `EmulatedAudit`. Raises `UsageError` where there is no such script and
    `WorkloadError` where it raises or exits with another status than 0.
    """
    path = Path(script)
    if not path.is_file():
        raise UsageError(f"There is no script {script}; check the path.")
    audit = EmulatedAudit(
        target=script,
        boundary="script",
        steps=steps,
        skip=skip,
        stop=True,
        user_files=(str(path),),
        **settings,
    )
    with as_workload_error(script, audit.classifier), audit:
        run_as_main(path, arguments)
    return audit.report
