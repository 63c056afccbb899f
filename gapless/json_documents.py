"""The JSON documents of `bench` and `reproduce`. Field names are a contract; unknown is null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness.boundary.foreign_text import json_text
from harness.record.records import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.record.records import RunRecord
    from harness.tables.claim_rows import ReproduceRow

_PER_RUN = ("comparisons", "parity", "syncs", "memory", "throughput", "overlap", "energy")


def run_document(record: RunRecord) -> RunRecord:
    """One run's record, raw samples left to the store."""
    return msgspec.structs.replace(record, samples=None)


def reproduce_document(
    rows: Sequence[ReproduceRow], records: Sequence[RunRecord]
) -> dict[str, Any]:
    """All rows and, under the names that one run's document has, the figures of all runs.

    Each entry of a list of figures bears the `run` and the `scenario` it belongs to.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "rows": msgspec.to_builtins(rows),
        "runs": [record.id for record in records],
        "machine": msgspec.to_builtins(records[0].machine) if records else None,
        "scenario": [msgspec.to_builtins(record.scenario) for record in records],
        "arms": [entry for record in records for entry in _entries(record, "arms")],
    }
    for name in _PER_RUN:
        document[name] = [entry for record in records for entry in _entries(record, name)]
    return document


def _entries(record: RunRecord, name: str) -> list[dict[str, Any]]:
    place = {"run": record.id, "scenario": record.scenario.name}
    return [place | entry for entry in msgspec.to_builtins(getattr(record, name))]


def indented(document: object) -> str:
    """Any of our values as indented JSON."""
    return json_text(document)
