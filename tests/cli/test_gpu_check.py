"""The check for a GPU machine, as far as a machine without one can test it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gapless import gpu_check
from gapless.sweep import Sweep
from tests.toys.small_records import record

ROOT = Path(gpu_check.__file__).resolve().parent.parent


@pytest.fixture
def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A GPU that is there, tests that pass, and a sweep that only notes what it was asked."""
    import torch

    asked: list[dict] = []

    def sweep_claims(runs, choices, **options):
        asked.append(options)
        return Sweep(records=[record()])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("gapless.sweep.sweep_claims", sweep_claims)
    monkeypatch.setattr(gpu_check, "ROOT", Path("/nowhere"))
    return asked


def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    code = "import torch, sys; sys.exit(int(torch.cuda.is_available()))"
    if subprocess.run([sys.executable, "-c", code]).returncode:
        pytest.skip("this machine has a GPU")
    done = subprocess.run(
        [sys.executable, "-m", "gapless.gpu_check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gpu-check: The GPU check needs a GPU, and ")
    assert len(done.stderr.splitlines()) == 1


def test_everything_lies_in_one_folder_and_ends_in_time(pretend_gpu, tmp_path: Path) -> None:
    folder = tmp_path / "check"
    began_s = time.monotonic()
    assert gpu_check.main([str(folder)]) == 0
    spent_s = time.monotonic() - began_s
    (options,) = pretend_gpu
    assert options["device"] == "cuda"
    assert options["fit"] == "layers"
    assert options["store"] == str(folder / "records")
    assert options["seconds"] + spent_s <= gpu_check.LIMIT_S
    assert "| packed-metadata |" in (folder / "table.md").read_text()


def test_a_failed_run_decides_the_exit_code(pretend_gpu, monkeypatch, tmp_path: Path) -> None:
    failed = Sweep(records=[record(status="failed", reason="Out of memory.")])
    monkeypatch.setattr("gapless.sweep.sweep_claims", lambda *args, **options: failed)
    assert gpu_check.main([str(tmp_path / "check")]) == 3


def test_the_core_alone_is_imported() -> None:
    code = (
        "import sys\n"
        "for name in ('streamlit', 'plotly', 'psutil', 'pynvml', 'hypothesis', 'peft'):\n"
        "    sys.modules[name] = None\n"  # an import of it fails
        "import gapless.gpu_check, gapless.sweep, gapless.published_runs, gapless.bench_run\n"
        "import gapless.terminal_tables\n"
        "import gapless.factory, harness.bench.child, harness.record.store, scenarios.published\n"
        "assert gapless.bench_run.variants_of()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
