"""Runs to put into a store."""

from __future__ import annotations

import msgspec

from harness.record.records import RunRecord, Sample
from tests.toys import small_records


def record(run_id: str, created_utc: str = "2026-01-02T03:04:05Z") -> RunRecord:
    """A run whose configuration holds every kind of value that one may hold."""
    run = small_records.record(id=run_id, created_utc=created_utc)
    config = {"num_layers": 2, "rope": None, "name": "tiny", "scale": 0.5, "tied": True}
    return msgspec.structs.replace(
        run, scenario=msgspec.structs.replace(run.scenario, config=config)
    )


def samples(count: int) -> list[Sample]:
    return [
        Sample(order=i, block=i // 4 - 1, arm=f"arm {i % 2}", phase="batch",
               duration_ms=0.1 * i + 1e-9, warmup=i < 4)
        for i in range(count)
    ]  # fmt: skip
