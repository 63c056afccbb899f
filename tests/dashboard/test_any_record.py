"""Every view takes any record that the store lists, however odd its figures and texts are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, given, settings

from dashboard.attached import Attached
from dashboard.contents import arms_page, claims_page, run_page, syncs_page, whatif_page
from dashboard.contents.arms_page import ArmChoices
from dashboard.contents.run_page import RunChoices
from dashboard.facets import facets_of
from dashboard.filters import Filters
from dashboard.markdown_report import csv_report, json_report, markdown_report
from dashboard.snapshot import Snapshot
from harness.errors import StoreError
from harness.record.records import RunRecord, Sample
from harness.tables.run_tables import run_tables
from tests.record.record_strategies import run_documents

if TYPE_CHECKING:
    from harness.record.attachments import ArmAudit


@dataclass(frozen=True)
class Beside(Attached):
    """Samples as given, and nothing else beside the record."""

    given: tuple[Sample, ...]

    def samples(self, run_id: str) -> tuple[Sample, ...]:
        return self.given

    def audits(self, run_id: str) -> tuple[ArmAudit, ...]:
        raise StoreError("There is none.")

    def timeline(self, run_id: str, arm: str) -> None:
        return None


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(document=run_documents("odd"))
def test_every_view_takes_every_listed_record(document: dict[str, Any]) -> None:
    record = msgspec.json.decode(json.dumps(document), type=RunRecord)
    found = Snapshot(
        root="store",
        records=(record,),
        facets=(facets_of(record),),
        problems=(),
        attached=Beside("store", record.samples or ()),
    )
    pages = [
        claims_page.claims_page(found, Filters()),
        arms_page.arms_page(found, ArmChoices(Filters())),
        syncs_page.front_page(found),
        run_page.run_page(found, record, RunChoices()),
    ]
    modelled = whatif_page.modelled_runs(found, Filters())
    if modelled.rows:
        pages.append(whatif_page.whatif_page(modelled))
    json.loads(msgspec.json.encode(pages))
    json.loads(json_report([record]))
    csv_report([record])
    markdown_report([record], everything=True)
    for table in run_tables(record):
        assert all(len(row) == len(table.columns) for row in table.rows)
