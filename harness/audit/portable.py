"""Reports that name no folder of the machine they were made on."""

from __future__ import annotations

import json
import os

from harness.origin import import_folders
from harness.record.audit_report import AuditReport, from_json, to_json


def portable(report: AuditReport) -> AuditReport:
    """The report with paths as they are on any machine: below this project, or a package.

    Records are shared, so they hold no path that names a user or a user's folders.
    """
    text = to_json(report)
    for folder in import_folders():
        text = text.replace(json.dumps(f"{folder}{os.sep}")[1:-1], "")
    return from_json(text)
