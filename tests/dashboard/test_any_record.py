"""Every view takes any record that the store lists, however odd its figures and texts are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings

from dashboard.facets import facets_of
from dashboard.markdown_report import csv_report, json_report, markdown_report
from dashboard.pages import ab_page, claims_page, run_page, syncs_page
from harness.record.records import RunRecord
from harness.tables.run_tables import run_tables
from tests.record.record_strategies import run_documents


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(document=run_documents("odd"))
def test_every_view_takes_every_listed_record(document: dict[str, Any]) -> None:
    record = msgspec.json.decode(json.dumps(document), type=RunRecord)
    facets_of(record)
    pages = [
        claims_page([record]),
        ab_page([record]),
        syncs_page([record], [()]),
        run_page(record, record.samples or ()),
    ]
    json.loads(msgspec.json.encode(pages))
    json.loads(json_report([record]))
    csv_report([record])
    markdown_report([record], everything=True)
    for table in run_tables(record):
        assert all(len(row) == len(table.columns) for row in table.rows)
