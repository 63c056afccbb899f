"""Every view takes any record that the store lists, however odd its figures and texts are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, given, settings

from dashboard.attached import Attached
from dashboard.facets import facets_of
from dashboard.html_export import collect, export_file
from dashboard.markdown_report import csv_report, json_report, markdown_report
from dashboard.snapshot import Snapshot
from harness.errors import StoreError
from harness.record.records import RunRecord
from harness.tables.run_tables import run_tables
from tests.record.record_strategies import run_documents

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.attachments import ArmAudit
    from harness.record.records import Sample


@dataclass(frozen=True)
class _Beside(Attached):
    """The samples of the record itself, and nothing else that could be read."""

    record: RunRecord

    def samples(self, run_id: str) -> tuple[Sample, ...]:
        return self.record.samples or ()

    def audits(self, run_id: str) -> tuple[ArmAudit, ...]:
        raise StoreError("There is no audits.json here.")


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(document=run_documents("odd"))
def test_every_view_takes_every_listed_record(document: dict[str, Any], tmp_path: Path) -> None:
    record = msgspec.json.decode(json.dumps(document), type=RunRecord)
    beside = _Beside("nowhere", record)
    found = Snapshot("nowhere", (record,), (facets_of(record),), (), beside)
    export_file(collect(found, [record], redact=False), tmp_path / "x.html", "cdn")
    json.loads(json_report([record]))
    csv_report([record])
    markdown_report([record], everything=True)
    for table in run_tables(record):
        assert all(len(row) == len(table.columns) for row in table.rows)
