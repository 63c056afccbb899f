"""Fixtures of the trace tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trace_paths import SHARED

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shared_trace(request: pytest.FixtureRequest) -> Path:
    """A full-size trace named by indirect parametrisation; skipped where it is not there."""
    path = SHARED / f"{request.param}.json.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine (looked in ../shared/traces)")
    return path
