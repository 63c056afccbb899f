"""`python -m gapless.gpu_check [FOLDER]`: the GPU tests and a bounded reproduction on one GPU.

Needs no network and the core dependencies only. Everything it leaves lies in one folder: the
records, the tests' output and the table. It ends within eight minutes, with what it has by then.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.saying import say_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.bench.child_events import Progress

LIMIT_S = 480.0
TESTS_LIMIT_S = 150.0
RESERVE_S = 20.0
"""For the last run's step in flight and its record."""
ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Exit code: 0 fine, 1 a test or parity failed, 2 no GPU here, 3 a workload failed."""
    deadline_s = time.monotonic() + LIMIT_S
    missing = _missing_gpu()
    if missing is not None:
        _say(missing)
        return 2
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(arguments[0] if arguments else f"gpu-check-{stamp}")
    folder.mkdir(parents=True, exist_ok=True)
    tests_code = _run_tests(folder)
    reproduce_code = _reproduce(folder, deadline_s - time.monotonic() - RESERVE_S)
    _say(f"Everything is in {folder}; move {folder}/records/* into results/ to keep the records.")
    return reproduce_code or tests_code


def _missing_gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed for this Python; run make gpu-check PYTHON=/path/to/python."
    if torch.cuda.is_available():
        return None
    built = torch.version.cuda or torch.version.hip
    reason = "torch sees none" if built else "this torch is a CPU build"
    return f"The GPU check needs a GPU, and {reason}; run it on a machine with one."


def _run_tests(folder: Path) -> int:
    """Run the tests marked `gpu` where pytest is installed; 1 where one failed."""
    if importlib.util.find_spec("pytest") is None:
        _say("The GPU tests were left out: pytest is not installed.")
        return 0
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_gpu_test(path)]
    if not files:
        _say("The GPU tests were left out: this copy has none.")
        return 0
    # The settings of pyproject.toml need plugins that a bare machine lacks.
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-o", "filterwarnings=", "--continue-on-collection-errors"]
    output = folder / "gpu-tests.txt"
    with output.open("w") as file:
        try:
            done = subprocess.run(
                [*command, *map(str, files)],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TESTS_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            _say(f"The GPU tests were ended after {TESTS_LIMIT_S:.0f} s; see {output}.")
            return 1
    _say(f"GPU tests: {_last_line(output)} ({output})")
    return int(done.returncode not in (0, 5))


def _has_gpu_test(path: Path) -> bool:
    return "mark.gpu" in path.read_text(encoding="utf-8")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip("= ") if lines else "no output"


def _reproduce(folder: Path, seconds: float) -> int:
    from gapless.bench_run import DEFAULT_PRECISION, variants_of
    from gapless.published_runs import plan_runs
    from gapless.sweep import sweep_claims
    from gapless.terminal_tables import print_table
    from harness.boundary.atomic_files import replace_file
    from harness.tables.claim_rows import reproduce_table
    from harness.tables.grid import to_markdown
    from scenarios.published import CLAIMS

    sweep = sweep_claims(
        plan_runs(CLAIMS),
        variants_of(),
        device="cuda",
        fit="layers",
        seconds=seconds,
        precision=DEFAULT_PRECISION,
        thorough=True,
        store=str(folder / "records"),
        show=_show_stages,
    )
    table = reproduce_table(sweep.rows(CLAIMS))
    replace_file(folder / "table.md", to_markdown(table) + "\n")
    print_table(table)
    return sweep.exit_code


@contextmanager
def _show_stages(label: str, _later_s: float) -> Iterator[Callable[[Progress], None]]:
    _say(label)
    yield lambda _progress: None


def _say(sentence: str) -> None:
    say_aside(f"gpu-check: {sentence}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
