"""What lies beside a run: its samples, audits and timelines, read when a page asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dashboard.plain import without_folder
from dashboard.redaction import redacted_audits, redacted_samples
from harness.errors import GaplessError, StoreError
from harness.record.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dashboard.rows.lane_rows import Timeline
    from harness.record.attachments import ArmAudit
    from harness.record.records import RunRecord, Sample


@dataclass(frozen=True)
class Attached:
    """Reads from one store; `StoreError` says what is wrong without the store's folder."""

    root: str

    def samples(self, run_id: str) -> tuple[Sample, ...]:
        """All samples of a run, in the order they were taken."""
        try:
            return _samples(self.root, run_id)
        except StoreError as error:
            raise self._told(error) from error

    def audits(self, run_id: str) -> tuple[ArmAudit, ...]:
        """The audits of a run, the baseline's first."""
        try:
            return _audits(self.root, run_id)
        except StoreError as error:
            raise self._told(error) from error

    def timeline(self, run_id: str, arm: str) -> Timeline | None:
        """The lanes of one arm's trace; `None` where it shows no work on a device."""
        try:
            return _timeline(self.root, run_id, arm)
        except GaplessError as error:
            raise self._told(error) from error

    def _told(self, error: GaplessError) -> StoreError:
        return StoreError(without_folder(error, self.root))


@dataclass(frozen=True)
class RedactedAttached(Attached):
    """The same without what tells who ran it and where."""

    originals: Mapping[str, RunRecord]
    """Redacted run id -> the record as the store has it, which knows the names to take out."""
    public: frozenset[str] = frozenset()
    """Texts known to everybody, which are kept."""

    def samples(self, run_id: str) -> tuple[Sample, ...]:
        """All samples of a run, their arms named as in the redacted record."""
        original = self.originals[run_id]
        return redacted_samples(original, super().samples(original.id))

    def audits(self, run_id: str) -> tuple[ArmAudit, ...]:
        """The audits of a run; of a source file its name is left."""
        original = self.originals[run_id]
        return redacted_audits(original, super().audits(original.id), self.public)

    def timeline(self, run_id: str, arm: str) -> Timeline | None:
        """Nothing: a trace holds names that no rule can judge."""
        del run_id, arm
        return None

    def _told(self, error: GaplessError) -> StoreError:
        del error  # it may name a folder
        return StoreError("What lies beside this run cannot be used, so it is left out.")


# A run never changes once it is written, so what was read of it stays true.
@lru_cache(maxsize=64)
def _samples(root: str, run_id: str) -> tuple[Sample, ...]:
    return Store(root).samples(run_id)


@lru_cache(maxsize=64)
def _audits(root: str, run_id: str) -> tuple[ArmAudit, ...]:
    return Store(root).audits(run_id)


@lru_cache(maxsize=8)
def _timeline(root: str, run_id: str, arm: str) -> Timeline | None:
    from dashboard.trace_child import audit_upload  # loads the trace audit, which few pages need

    store = Store(root)
    return audit_upload("trace.gz", store.trace(store.read(run_id), arm)).timeline
