"""A store of the test's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.record.store import Store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    # Nothing here is about a disk that loses power, and forcing hundreds of writes out is slow.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Store(str(tmp_path / "runs"))
