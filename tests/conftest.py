"""What every test stands on: isolated state, steady threads, and reasons for what is skipped."""

from __future__ import annotations

import importlib.metadata
import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Before torch is imported anywhere: threads make timings of tiny models jump, and the suite runs
# in several workers already.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_configure() -> None:
    """A shell that runs the tests in the background has Ctrl-C ignored, also for their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    versions = (f"{name} {_version(name)}" for name in ("gapless", "torch", "transformers"))
    return ", ".join(versions)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip GPU tests with what is missing; torch is imported only where one was collected."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch

    if torch.cuda.is_available():
        return
    built = torch.version.cuda or torch.version.hip
    missing = "no GPU is visible" if built else "this torch is a CPU build"
    for item in gpu_items:
        item.add_marker(pytest.mark.skip(reason=f"needs a CUDA device: {missing}"))


@pytest.fixture(autouse=True)
def isolated_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records go to the test's own folder, and nothing of the user's settings comes in."""
    for name in [name for name in os.environ if name.startswith("GAPLESS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GAPLESS_STORE", str(tmp_path / "results"))
