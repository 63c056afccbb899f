"""What tests of the store and of its index share."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is: a folder that does not exist yet, and one in memory."""
    return str(tmp_path / "a" / "b") if request.param == "local" else f"memory://{uuid.uuid4()}/x"
