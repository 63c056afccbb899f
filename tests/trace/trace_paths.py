"""Where the traces for these tests are."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "traces"
