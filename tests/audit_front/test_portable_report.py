"""A report kept with a run names no folder of the machine it was made on."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from harness import origin
from harness.audit.portable import portable
from harness.record.audit_report import AuditReport, Site, to_json
from harness.record.sync_kinds import SyncKind

HOME = Path(origin.HOME)


def test_paths_start_at_the_project_or_at_the_package() -> None:
    inside = HOME / "scenarios" / "masks.py"
    library = Path(sysconfig.get_path("purelib")) / "transformers" / "masking_utils.py"
    site = Site(
        op="aten::item",
        kind=SyncKind.SCALAR_READ,
        phase="forward",
        count_per_step=1,
        syncs_per_call=1,
        file=str(inside),
        library=f"{library}:7 f",
    )
    report = AuditReport(
        source="emulated", target="x", device="d", steps=1, syncs_per_step=1, sites=(site,)
    )
    (kept,) = portable(report).sites
    assert (kept.file, kept.library) == ("scenarios/masks.py", "transformers/masking_utils.py:7 f")
    assert str(HOME) not in to_json(portable(report))
