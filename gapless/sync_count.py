"""What the pytest fixture counts with: torch's own callbacks on a GPU, the rules elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.findings.answering import with_answers
from harness.tables.audit_text import report_text
from optimizations.optimization_catalogue import answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.audit.live.live_syncs import SyncRecorder
    from harness.record.audit_report import AuditReport


class SyncAudit(Protocol):
    """Counts while it is open."""

    @property
    def count(self) -> int:
        """Times the host has waited for the device so far; intended waits do not count."""
        ...

    def explain(self) -> str:
        """Where it waited, for people."""
        ...


class EmulatedSyncAudit:
    """Counts by the sync rules, on the emulated device."""

    def __init__(self, audit: EmulatedAudit) -> None:
        self._audit = audit

    @property
    def count(self) -> int:
        """Times the host has waited for the device so far; intended waits do not count."""
        return self._audit.num_syncs

    @property
    def report(self) -> AuditReport:
        """What was found so far."""
        return self._audit.report_so_far()

    def explain(self) -> str:
        """Where it waited, as the terminal report has it."""
        return report_text(with_answers(self.report, answers()))


class RecordedSyncAudit:
    """Counts by torch's callbacks and warnings, on a GPU."""

    def __init__(self, recorder: SyncRecorder) -> None:
        self._recorder = recorder

    @property
    def count(self) -> int:
        """The larger of the two counts: each sees waits that the other does not."""
        return max(self._recorder.num_callbacks, self._recorder.num_warnings)

    def explain(self) -> str:
        """One line for each place."""
        return "\n".join(
            f"{line.file}:{line.line} in {line.function}" for line in self._recorder.lines()
        )


@contextmanager
def open_sync_audit() -> Iterator[SyncAudit]:
    """Count from here to the end of the block."""
    import torch

    if torch.cuda.is_available():
        from harness.audit.live.live_syncs import SyncRecorder

        with SyncRecorder() as recorder:
            yield RecordedSyncAudit(recorder)
        return
    with EmulatedAudit(target="test", boundary="explicit", skip=0) as audit:
        audit.record(True)
        yield EmulatedSyncAudit(audit)
