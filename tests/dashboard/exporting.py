"""Exports a store, and reads back what is packed inside a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import TYPE_CHECKING, Any

from dashboard.filters import Filters
from dashboard.html_export import collect, export_file
from dashboard.snapshot import take_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from harness.record.store import Store


def exported(store: Store, target: Path, *, redact: bool = True, **options: Any) -> str:
    snapshot = take_snapshot(store.root)
    runs = collect(snapshot, snapshot.select(Filters()), redact=redact)
    export_file(runs, target, **options)
    return target.read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(unpacked(page, "data"))
    return found


def unpacked(page: str, name: str) -> str:
    """What the compressed element of this name holds."""
    match = re.search(rf'<script type="text/plain" id="{name}">([^<]*)</script>', page)
    assert match is not None
    return gzip.decompress(base64.b64decode(match[1])).decode()
