"""Where the traces for these tests are."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture
def shared_trace(request: pytest.FixtureRequest) -> Path:
    """A full-size trace named by indirect parametrisation; skipped where it is not there."""
    path = SHARED / f"{request.param}.json.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine (looked in ../shared/traces)")
    return path
